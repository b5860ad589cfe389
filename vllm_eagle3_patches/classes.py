"""The classes a fault can have, as `check --drafter` and `explain` name them in JSON."""

from __future__ import annotations

from vllm_eagle3_patches.gates import NAMES

# Gates' names first, then the classes of faults that no gate stands for.
CLASSES: tuple[str, ...] = (
    *NAMES,
    "aux-shape",
    "aux-layers",
    "pipeline-parallel",
    "draft-tensor-parallel",
    "quantization",
    "attention-backend",
    "kv-cache",
    "length",
    "compile",
    "argument",
    "drafter-missing",
    "ignored-setting",
    "runtime",
    "unknown",
)
