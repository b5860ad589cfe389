"""Two things that vLLM's start-up does otherwise, neither of which EAGLE-3 meets."""

from __future__ import annotations

import functools
from typing import Any


def install(request: dict[str, Any]) -> None:
    _inspect_here()
    if request["multimodal"]:
        _text_only()


def _inspect_here() -> None:
    """vLLM looks at each model class in a process of its own, ten seconds each, so as to leave
    CUDA alone before it forks; this process is used once, and forks nothing."""
    from vllm.model_executor.models import registry

    if hasattr(registry, "_run_in_subprocess"):
        registry._run_in_subprocess = lambda function: function()


def _text_only() -> None:
    """No media are asked for, so the answer is no; vLLM wants the model's media processor, whose
    files a twin does not have, before it can say so."""
    from vllm.multimodal.registry import MultiModalRegistry

    ask = getattr(MultiModalRegistry, "supports_multimodal_inputs", None)
    if ask is None:
        return

    @functools.wraps(ask)
    def answer(self: Any, model_config: Any) -> bool:
        try:
            return bool(ask(self, model_config))
        except (OSError, ValueError):
            return False

    MultiModalRegistry.supports_multimodal_inputs = answer
