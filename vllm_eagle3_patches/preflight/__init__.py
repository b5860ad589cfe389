"""Preflight: what will go wrong when a drafter is served on a target, before anything is loaded.

Reads both config.json files, the headers of the drafter's weights, the user's command line and
the installed vLLM's source.  Nothing of vLLM is imported, and no weight is read.
"""

from __future__ import annotations

from vllm_eagle3_patches.classes import CLASSES
from vllm_eagle3_patches.errors import PatchError
from vllm_eagle3_patches.preflight.case import Case, case
from vllm_eagle3_patches.preflight.checks import CHECKS
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.declared import Declared
from vllm_eagle3_patches.preflight.findings import Finding, Severity, warning

__all__ = ["CLASSES", "Case", "Context", "Declared", "Finding", "Severity", "case", "examine"]


def examine(context: Context) -> tuple[Finding, ...]:
    """All findings, in the order in which a start-up meets them."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found += check(context)
        except PatchError as problem:
            found.append(
                warning(
                    "unknown",
                    f"{check.__module__.rpartition('.')[2]}: {problem.what} ({problem.where})",
                    "if this vLLM is a fork or a newer one, report it with this message",
                )
            )
    return tuple(dict.fromkeys(found))
