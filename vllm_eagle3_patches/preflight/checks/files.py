"""`drafter-missing`: the drafter's weight files are absent, cut short, or Git LFS pointers."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.findings import Finding, error, warning

CLASS = "drafter-missing"


def check(context: Context) -> Iterator[Finding]:
    drafter = context.drafter
    for problem in drafter.weights.problems:
        pointer = "LFS" in problem
        yield error(
            CLASS,
            f"drafter weights: {problem} (in {drafter.folder})",
            f"run `git lfs pull` in {drafter.folder}" if pointer else "fetch the drafter again",
        )
    yield from _remote_code(context)


def _remote_code(context: Context) -> Iterator[Finding]:
    """`auto_map` names a Python file of the drafter's own that is not there."""
    mapping = context.drafter.raw.get("auto_map")
    name = mapping.get("AutoConfig") if isinstance(mapping, dict) else None
    if not isinstance(name, str) or "--" in name or "." not in name:
        return
    if context.drafter.speculators:
        return  # vLLM reads this format without the file
    file = f"{name.rpartition('.')[0].replace('.', '/')}.py"
    if (context.drafter.folder / file).exists():
        return
    yield warning(
        CLASS,
        f"config.json's auto_map names {file}, which is not in {context.drafter.folder}; with "
        "--trust-remote-code Transformers stops there where it does not know the model_type",
        f"fetch {file} too, or take auto_map out of the drafter's config.json",
    )
