"""What the real pair will need on each GPU, from the headers of its files; nothing is loaded."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_eagle3_patches.preflight import weights
from vllm_eagle3_patches.preflight.facts import integer, text_config
from vllm_eagle3_patches.preflight.safetensors import Tensor

BYTES = {
    "F64": 8.0, "I64": 8.0, "U64": 8.0, "F32": 4.0, "I32": 4.0, "U32": 4.0, "F16": 2.0,
    "BF16": 2.0, "I16": 2.0, "U16": 2.0, "F8_E4M3": 1.0, "F8_E5M2": 1.0, "F8_E8M0": 1.0,
    "I8": 1.0, "U8": 1.0, "BOOL": 1.0, "F4": 0.5,
}  # fmt: skip
BATCHED_TOKENS = 8192  # vLLM's default on GPUs of 70 GiB and more; an engine may set another
STATE_BYTES = 2  # bfloat16


@dataclass(frozen=True)
class Estimate:
    """Bytes; None where no header tells.

    Attributes:
        target: the weights as stored.
        drafter: the drafter's, as stored.
        states: the aux states of one full batch, and their concatenation.
        parallel: the tensor-parallel size that shares the weights.
    """

    target: int | None
    drafter: int | None
    states: int | None
    parallel: int

    @property
    def per_gpu(self) -> int | None:
        """Weights on each GPU where all are sharded evenly: the least that it can be."""
        if self.target is None or self.drafter is None:
            return None
        return -(-self.target // self.parallel) + -(-self.drafter // self.parallel)

    def as_json(self) -> dict[str, Any]:
        return {
            "target_bytes": self.target,
            "drafter_bytes": self.drafter,
            "aux_state_bytes": self.states,
            "tensor_parallel": self.parallel,
            "weights_per_gpu_bytes": self.per_gpu,
        }

    def lines(self) -> list[str]:
        said = [f"target {_size(self.target)}, drafter {_size(self.drafter)} as stored"]
        if self.per_gpu is not None:
            said.append(f"weights on each of {self.parallel} GPU(s): {_size(self.per_gpu)} or more")
        if self.states is not None:
            said.append(f"aux states of a batch of {BATCHED_TOKENS} tokens: {_size(self.states)}")
        return said


def estimate(
    target: Path | None,
    drafter: Path,
    config: Mapping[str, Any],
    states: int,
    parallel: int,
    batched: int | None = None,
) -> Estimate:
    """`states`: how many aux states the drafter asks for."""
    hidden = integer(text_config(config), "hidden_size")
    tokens = batched or BATCHED_TOKENS
    aux = None if hidden is None else 2 * states * hidden * tokens * STATE_BYTES
    return Estimate(None if target is None else stored(target), stored(drafter), aux, parallel)


def stored(folder: Path) -> int | None:
    """The size of the weights in a folder: from the headers, else from what the index says."""
    found = weights.look(folder).tensors
    if found is not None:
        return sum(map(size, found.values()))
    try:
        total = json.loads((folder / weights.INDEX).read_bytes())["metadata"]["total_size"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return int(total) if isinstance(total, (int, float)) else None


def size(tensor: Tensor) -> int:
    return math.ceil(math.prod(tensor.shape) * BYTES.get(tensor.dtype, 1.0))


def _size(count: int | None) -> str:
    if count is None:
        return "not known (no weights at hand)"
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
