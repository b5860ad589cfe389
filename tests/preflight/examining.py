"""Examines a published or made-up combination under a real vLLM release."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from real import sources

from preflight.folders import write_model
from preflight.published import Config, Shapes, tensors
from vllm_eagle3_patches import target
from vllm_eagle3_patches.preflight import Finding, Severity, case, examine
from vllm_eagle3_patches.sources import Sources

DEFAULT: Any = object()


def findings(
    version: str,
    model: Config,
    drafter: Config,
    shapes: Shapes | None = DEFAULT,
    *,
    args: str = "",
    where: Sources | None = None,
    name: str = "drafter",
) -> tuple[Finding, ...]:
    """All findings; the tensors are those that fit, unless others (or None: none) are given."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary, name)
        write_model(folder, drafter, tensors(drafter, model) if shapes is DEFAULT else shapes)
        named = write_model(Path(temporary, "model"), model)
        asked = case(str(named), str(folder), args, ())
        installed = where or Sources(sources(version).root)
        return examine(asked.context(installed, version, target.request(str(named))))


def of_class(found: tuple[Finding, ...], cls: str) -> list[Finding]:
    return [finding for finding in found if finding.cls == cls]


def errors(found: tuple[Finding, ...]) -> list[Finding]:
    return [finding for finding in found if finding.severity is Severity.ERROR]


def matching(found: tuple[Finding, ...], cls: str, *words: str) -> list[Finding]:
    """The findings of a class whose detail has all these words."""
    return [f for f in of_class(found, cls) if all(word in f.detail for word in words)]
