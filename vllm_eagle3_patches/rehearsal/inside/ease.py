"""Two things that vLLM's start-up does otherwise, neither of which EAGLE-3 meets."""

from __future__ import annotations

import functools
from collections.abc import Callable
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
    """No media are asked for, so there is no need of a media processor; vLLM makes one before it
    can say so, from files that a twin does not have."""
    from vllm.multimodal.registry import MultiModalRegistry

    for name, instead in (("supports_multimodal_inputs", False), ("create_processor", None)):
        method = getattr(MultiModalRegistry, name, None)
        if method is not None:
            setattr(MultiModalRegistry, name, _without_files(method, instead))


def _without_files(method: Callable[..., Any], instead: Any) -> Callable[..., Any]:
    @functools.wraps(method)
    def answer(*args: Any, **kwargs: Any) -> Any:
        try:
            return method(*args, **kwargs)
        except (OSError, ValueError):
            return instead

    return answer
