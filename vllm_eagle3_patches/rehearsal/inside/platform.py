"""What this machine and this vLLM can rehearse: CPU or GPU, compiled or not, how exactly."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Kind:
    """How the engine is run, and how closely it is compared.

    Attributes:
        cpu: a CPU build.
        speculates: whether it can run a drafter.
        compiled: with torch.compile (and CUDA graphs), so that layers are not called one by one.
        dtype: of weights and states.
        exact: relative difference allowed between a state and its layer's entry.
        close: relative difference allowed from the reference.
        tie: log-probabilities closer than this may change places.
    """

    cpu: bool
    speculates: bool
    compiled: bool
    dtype: str
    exact: float
    close: float
    tie: float

    def as_eager(self) -> Kind:
        return replace(self, compiled=False)


def facts() -> dict[str, Any]:
    import torch
    from vllm.platforms import current_platform

    cpu = current_platform.is_cpu()
    return {
        "torch": torch.__version__,
        "device": "cpu" if cpu else current_platform.get_device_name(),
        "speculates": not cpu or cpu_speculates(),
    }


def cpu_speculates() -> bool:
    """Whether a CPU build runs a drafter: from 0.22 its runner sets the aux layers."""
    from vllm.v1.worker import cpu_model_runner

    return "_setup_eagle3_aux_hidden_state_outputs" in inspect.getsource(cpu_model_runner)


def kind(request: dict[str, Any]) -> Kind:
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        return Kind(True, cpu_speculates(), False, "float32", 1e-6, 1e-4, 1e-4)
    dtype = request["dtype"]
    compiled = not request["eager"]
    if dtype == "float32":
        return Kind(False, True, compiled, dtype, 1e-5, 2e-2, 1e-2)
    return Kind(False, True, compiled, dtype, 2e-2, 1e-1, 1e-1)
