"""Three things that vLLM's start-up does otherwise, none of which EAGLE-3 meets."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any


def install(request: dict[str, Any]) -> None:
    _inspect_here()
    _meet_at_a_file(request["folder"])
    if request["multimodal"]:
        _text_only()


def _inspect_here() -> None:
    """vLLM looks at each model class in a process of its own, ten seconds each, so as to leave
    CUDA alone before it forks; this process is used once, and forks nothing."""
    from vllm.model_executor.models import registry

    if hasattr(registry, "_run_in_subprocess"):
        registry._run_in_subprocess = lambda function: function()


def _meet_at_a_file(folder: str) -> None:
    """The processes of a group find each other through a file, as vLLM 0.32 has it, and not at a
    TCP port, which torch opens to everyone, for a single process too."""
    import torch.distributed

    original, count = torch.distributed.init_process_group, itertools.count()

    @functools.wraps(original)
    def meet(*args: Any, **kwargs: Any) -> Any:
        method = kwargs.get("init_method")
        if isinstance(method, str) and method.startswith("tcp://"):
            port = method.rpartition(":")[2]  # the same in all processes of the group
            kwargs["init_method"] = f"file://{folder}/state/tmp/group-{port}-{next(count)}"
        return original(*args, **kwargs)

    torch.distributed.init_process_group = meet


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
