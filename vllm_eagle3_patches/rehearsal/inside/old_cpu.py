"""CPU builds of vLLM before 0.22 refuse a drafter: how far they can be taken all the same.

Their CPU runner asserts that there is no speculative configuration (to 0.19.1), or loads the
drafter and never sets the aux layers (0.20, 0.21).  With the runner's own start-up replaced by
that of the GPU runner, which the CPU one inherits from, everything up to the KV cache runs as it
does on a GPU.  Drafting itself needs Triton kernels, which such a build has none of.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

WHY = "this CPU build of vLLM cannot run a drafter: from 0.22 they can"


def install() -> None:
    """The CPU runner starts as the GPU runner does: its loader, its question for the interface."""
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner, _torch_cuda_wrapper
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    def init(self: Any, vllm_config: Any, device: Any) -> None:
        with _torch_cuda_wrapper():
            GPUModelRunner.__init__(self, vllm_config, device)
        self.use_cuda_graph = False
        self.cascade_attn_enabled = False
        self._postprocess_tensors()

    CPUModelRunner.__init__ = init
    CPUModelRunner.load_model = GPUModelRunner.load_model
    CpuPlatform.get_current_memory_usage = classmethod(lambda cls, device=None: 0.0)
    _kimi_k25_of_0_15()


def _kimi_k25_of_0_15() -> None:
    """Its constructor asks CUDA for the device; its loader assumes that MLA is on."""
    try:
        from vllm.model_executor.models import kimi_k25
    except ImportError:  # before 0.15
        return
    model = kimi_k25.KimiK25ForConditionalGeneration
    if not hasattr(model, "get_expert_mapping"):
        return
    load_weights, init = model.load_weights, model.__init__

    def load_without_mla(self: Any, weights: Any) -> Any:
        config = self.config.text_config
        rank, config.q_lora_rank = config.q_lora_rank, None
        try:
            return load_weights(self, weights)
        finally:
            config.q_lora_rank = rank

    @functools.wraps(init)  # vLLM reads the parameters
    def init_on_cpu(self: Any, *args: Any, **kwargs: Any) -> None:
        import torch

        with _replaced(torch.cuda, "current_device", lambda: torch.device("cpu")):
            init(self, *args, **kwargs)

    model.load_weights, model.__init__ = load_without_mla, init_on_cpu


@contextlib.contextmanager
def _replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, before)
