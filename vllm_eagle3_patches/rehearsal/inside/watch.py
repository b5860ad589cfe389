"""Tells, as the engine starts, which stage it is in: by watching the calls between its parts.

Nothing of what vLLM does is changed; each watched method still runs, and its own exception ends
the stage.  Methods are watched on the instances, so that every worker and runner class is.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm_eagle3_patches.rehearsal.inside import ease, events, fill
from vllm_eagle3_patches.rehearsal.stages import (
    CONFIGS,
    DRAFTER,
    INTERFACE,
    KV_CACHE,
    PROFILE,
    SHARING,
    TARGET,
)

EMBEDDINGS = ("embed_tokens", "embedding", "embed_in", "word_embeddings", "wte")
WARM = 16  # tokens of a forward, as many as the CPU runner takes to warm up
AUX_LAYERS = "aux_hidden_state_layers"
ASKED = "_rehearsal_aux_layers"


class Watch:
    """What is known of one rehearsal while it starts."""

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.speculating = False
        self.v2 = False  # the V2 model runner
        self.forwards = 0  # of the profile run
        self.speaks = True  # of several workers one
        self.runners: list[Any] = []

    def release(self) -> None:
        """Gives back the weights of engines that are no longer needed; vLLM's caches keep their
        models alive in a process that goes on."""
        modules = []
        for runner in self.runners:
            proposer = getattr(runner, "drafter", None) or getattr(runner, "speculator", None)
            for model in (getattr(runner, "model", None), getattr(proposer, "model", None)):
                modules += list(model.modules()) if model is not None else []
            getattr(runner, "kv_caches", []).clear()
        for module in modules:  # all were found first: the two models share some
            # Modules without weights of their own may be vLLM's for good: rotary embeddings are.
            if vars(module).get("_parameters"):
                vars(module).clear()
        self.runners.clear()

    def begin(self, stage: str) -> None:
        if self.speaks and self.speculating:
            events.begin(stage)

    def ran(self) -> None:
        self.forwards += 1

    def passed(self, stage: str, detail: str = "", **facts: Any) -> None:
        if self.speaks and self.speculating:
            events.passed(stage, detail, **facts)


def install(path: str) -> Watch:
    """Watches from here on, in this process."""
    request = json.loads(Path(path).read_text())
    made = Path(request["folder"]) / "ready.json"  # there before any engine is started
    request["checkpoint"] = json.loads(made.read_text())["checkpoint"]
    events.to(request["events"])
    watch = Watch(request)
    ease.install(request)
    _configs(watch)
    _loaders(watch)
    _workers(watch)
    return watch


def around(
    holder: Any,
    name: str,
    before: Callable[..., None] | None = None,
    after: Callable[..., None] | None = None,
) -> bool:
    """Calls `before` and `after` around a method; `after` only where it returns."""
    method = getattr(holder, name, None)
    if method is None:
        return False

    @functools.wraps(method)
    def watched(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(*args, **kwargs)
        result = method(*args, **kwargs)
        if after is not None:
            after(result, *args, **kwargs)
        return result

    setattr(holder, name, watched)
    return True


def _configs(watch: Watch) -> None:
    from vllm.engine.arg_utils import EngineArgs

    def begin(arguments: Any, *_: Any, **__: Any) -> None:
        watch.speculating = bool(arguments.speculative_config)
        watch.begin(CONFIGS)

    def end(config: Any, *_: Any, **__: Any) -> None:
        draft = getattr(config.speculative_config, "draft_model_config", None)
        text = config.model_config.hf_text_config
        names = f"{config.model_config.architectures[0]}, model_type {text.model_type}"
        if draft is not None:
            names += f"; drafter {draft.architectures[0]}"
        watch.passed(CONFIGS, names)

    around(EngineArgs, "create_engine_config", begin, end)


def _loaders(watch: Watch) -> None:
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    def begin(loader: Any, vllm_config: Any, model_config: Any, *_: Any, **__: Any) -> None:
        watch.speculating = vllm_config.speculative_config is not None
        watch.begin(DRAFTER if _is_drafter(watch, model_config) else TARGET)

    def end(
        model: Any, loader: Any, vllm_config: Any, model_config: Any, *_: Any, **__: Any
    ) -> None:
        size = sum(parameter.numel() for parameter in model.parameters())
        text = f"{type(model).__name__}, {size / 1e6:.1f} M parameters"
        stage = DRAFTER if _is_drafter(watch, model_config) else TARGET
        watch.passed(stage, text, parameters=size)
        if stage == TARGET:
            around(model, "set_aux_hidden_state_layers", lambda ids: setattr(model, ASKED, ids))
        watch.begin({DRAFTER: SHARING, TARGET: INTERFACE if watch.v2 else DRAFTER}[stage])

    around(BaseModelLoader, "load_model", begin, end)
    default = DefaultModelLoader.load_weights

    @functools.wraps(default)
    def load_weights(self: Any, model: Any, model_config: Any) -> Any:
        kind = watch.request["checkpoint"]
        if kind == "whole" or _is_drafter(watch, model_config):
            return default(self, model, model_config)
        return fill.target(self.load_config, model, model_config, text=kind == "text")

    DefaultModelLoader.load_weights = load_weights


def _is_drafter(watch: Watch, model_config: Any) -> bool:
    return bool(model_config.model == watch.request["drafter"])


def _workers(watch: Watch) -> None:
    try:
        from vllm.v1.worker.worker_base import WorkerWrapperBase
    except ImportError:  # before 0.12
        from vllm.worker.worker_base import WorkerWrapperBase

    def created(_: Any, wrapper: Any, *__: Any, **___: Any) -> None:
        worker = wrapper.worker
        watch.speaks = getattr(worker, "rank", 0) == 0
        around(worker, "init_device", after=lambda *_: _runner(watch, worker.model_runner))
        around(worker, "load_model", after=lambda *_, **__: loaded(worker.model_runner))
        around(
            worker,
            "determine_available_memory",
            lambda *_: watch.begin(PROFILE),
            lambda *_: profiled(worker.model_runner),
        )
        around(
            worker,
            "initialize_from_config",
            lambda *_, **__: watch.begin(KV_CACHE),
            lambda *_, **__: watch.passed(KV_CACHE),
        )

    def profiled(runner: Any) -> None:
        if not watch.forwards and watch.speculating:
            # A CPU build that compiles nothing leaves the forward out, or has it later.
            runner._dummy_run(WARM)
        watch.passed(PROFILE, f"{watch.forwards} forward(s)")

    def loaded(runner: Any) -> None:
        if watch.speculating:
            ids = aux_layers(runner.get_model())
            if ids is not None and not watch.v2:
                watch.passed(INTERFACE, f"aux layers {', '.join(map(str, ids))}", ids=list(ids))

    around(WorkerWrapperBase, "init_worker", after=created)


def _runner(watch: Watch, runner: Any) -> None:
    watch.runners.append(runner)
    watch.v2, watch.forwards = hasattr(runner, "speculator"), 0
    around(runner, "_dummy_run", after=lambda *_, **__: watch.ran())
    proposer = getattr(runner, "drafter", None) or getattr(runner, "speculator", None)
    if proposer is None:
        return

    def begin(target: Any, *_: Any, **__: Any) -> None:
        ids = aux_layers(target)
        if watch.v2 and ids is not None:
            watch.passed(INTERFACE, f"aux layers {', '.join(map(str, ids))}", ids=list(ids))
        watch.begin(DRAFTER)

    def end(_: Any, target: Any, *__: Any, **___: Any) -> None:
        shared = sharing(target, proposer.model)
        own = [name for name in ("embed_tokens", "lm_head") if name not in shared]
        detail = f"shares {' and '.join(shared)}" if shared else "shares nothing"
        detail += f"; own {' and '.join(own)}" if own else ""
        watch.passed(SHARING, detail, shared=shared)
        if not watch.v2:
            watch.begin(INTERFACE)

    around(proposer, "load_model", begin, end)


def language_model(model: Any) -> Any:
    """The language model inside a wrapper."""
    method = getattr(model, "get_language_model", None)
    if callable(method):
        return method()
    return getattr(model, "language_model", None) or model


def sharing(target: Any, drafter: Any) -> list[str]:
    """Which of embedding and head the drafter has in common with its target: the same module."""
    language, found = language_model(target), []
    drafters = getattr(getattr(drafter, "model", None), "embed_tokens", None)
    inner = getattr(language, "model", language)
    if drafters is not None and any(getattr(inner, n, None) is drafters for n in EMBEDDINGS):
        found.append("embed_tokens")
    head = getattr(drafter, "lm_head", None)
    if head is not None and head in (
        getattr(language, "lm_head", None),
        getattr(target, "lm_head", None),
    ):
        found.append("lm_head")
    return found


def holder(model: Any) -> Any:
    """The module that holds the aux layer ids and captures."""
    return next((m for m in model.modules() if getattr(m, AUX_LAYERS, None)), None)


def aux_layers(model: Any) -> tuple[int, ...] | None:
    """The ids that the model was told; where that was not seen, those it holds."""
    found = getattr(model, ASKED, None) or getattr(holder(model), AUX_LAYERS, None)
    return tuple(found) if found else None
