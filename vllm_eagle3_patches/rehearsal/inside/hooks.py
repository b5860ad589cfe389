"""Looks at the residual stream while the engine runs the model.

Pre-hooks on every decoder layer record the stream on entry; a hook on the whole model sees what
the runner gets.  The two are compared on every forward, by layer id.
"""

from __future__ import annotations

import inspect
from typing import Any

from vllm_eagle3_patches.rehearsal.inside import watch

NORMS = ("norm", "final_layernorm", "ln_f")
KEPT = "_rehearsal_observer"


def decoder(model: Any, layers: int) -> Any:
    """The module that holds the language model's decoder layers."""
    holder = watch.holder(model)
    named = [("", holder)] if holder is not None else []
    for name, module in (*named, *model.named_modules()):
        inner = getattr(module, "layers", None)
        if inner is not None and len(inner) == layers and "vis" not in name:
            return module
    return None


class Entry:
    """What a layer was given, and whether it makes use of the residual.

    A layer that defers its residual hands the one it is given on to its first norm, to be added;
    then the stream is the sum.  Where it does not, the residual may be stale (Cohere's layers
    return the complete stream), and the stream is `hidden_states` alone; or the layer adds it by
    itself.  Then either is taken for right: the comparison with Transformers decides.
    """

    def __init__(self, hidden: Any, residual: Any, before: Entry | None) -> None:
        self.alone = hidden.clone()
        self.both = None if residual is None else hidden + residual
        self.place = None if residual is None else residual.data_ptr()
        self.before, self.used = before, False

    def reaches(self, arguments: tuple[Any, ...]) -> None:
        """A part of the layer is called with these."""
        places = (a.data_ptr() for a in arguments[1:] if hasattr(a, "data_ptr"))
        self.used = self.used or (self.place is not None and self.place in places)

    def possible(self) -> list[Any]:
        """What the stream can be; the final norm is as the layer before it."""
        if self.both is None:
            return [self.alone]
        used = self.used or (self.before is not None and self.before.used)
        return [self.both] if used else [self.alone, self.both]


class Observer:
    """Compares what the model returns with its real residual stream, and keeps the last states."""

    def __init__(self, model: Any, layers: int, *, stream: bool = True, rows: int = 0) -> None:
        self.model, self.layers, self.rows = model, layers, rows
        self.inner = decoder(model, layers)
        self.stream: dict[int, Entry] = {}
        self.last: dict[int, Any] = {}
        self.worst: dict[int, float] = {}
        self.scale: dict[int, float] = {}
        self.shapes: set[tuple[int, int]] = set()
        self.unsure: set[int] = set()
        self.forwards = self.compared = 0
        if stream and self.inner is not None:
            for index, layer in enumerate(self.inner.layers):
                self._watch(layer, index)
            norm = next((n for n in NORMS if hasattr(self.inner, n)), None)
            if norm is not None:
                self._watch(getattr(self.inner, norm), layers)
        model.register_forward_hook(self._output)

    @property
    def ids(self) -> tuple[int, ...]:
        return tuple(watch.aux_layers(self.model) or ())

    def _watch(self, module: Any, index: int) -> None:
        signature = inspect.signature(module.forward)

        def entry(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = signature.bind_partial(*args, **kwargs).arguments
            hidden = given.get("hidden_states", given.get("x"))
            residual = given.get("residual", given.get("residuals"))
            if index == self.layers:  # a norm, whose `forward` may name no arguments (CustomOp)
                tensors = [a for a in (*args, *kwargs.values()) if hasattr(a, "data_ptr")]
                hidden, residual = [*tensors, None, None][:2]
            if hidden is not None:
                before = self.stream.get(index - 1)
                self.stream[index] = Entry(hidden, residual, before)

        def inside(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            if index in self.stream:
                self.stream[index].reaches((*args, *kwargs.values()))

        module.register_forward_pre_hook(entry, with_kwargs=True)
        if index < self.layers:
            for child in module.children():
                child.register_forward_pre_hook(inside, with_kwargs=True)

    def _output(self, _: Any, __: Any, output: Any) -> None:
        stream, self.stream = self.stream, {}
        captured = output[1] if isinstance(output, tuple) and len(output) == 2 else []
        self.shapes.add((len(captured), len(self.ids)))
        self.forwards += 1
        # A model captures as it goes through its layers, in whatever order it was asked.
        for layer_id, state in zip(sorted(set(self.ids)), captured, strict=False):
            if state.shape[0] >= self.rows:  # of a whole prompt, and not of a step after it
                self.last[layer_id] = state.clone()
            if layer_id in stream:
                self._compare(layer_id, state, stream[layer_id])

    def _compare(self, layer_id: int, state: Any, entry: Entry) -> None:
        possible = entry.possible()
        if len(possible) > 1:
            self.unsure.add(layer_id)
        difference = min((state - e).abs().max().item() for e in possible)
        self.worst[layer_id] = max(self.worst.get(layer_id, 0.0), difference)
        size = state.abs().max().item()
        self.scale[layer_id] = max(self.scale.get(layer_id, 0.0), size)
        self.compared += 1

    def figures(self) -> dict[str, Any]:
        return {
            "ids": list(self.ids),
            "forwards": self.forwards,
            "compared": self.compared,
            "captured_and_asked": sorted(map(list, self.shapes)),
            "difference": {str(k): v for k, v in self.worst.items()},
            "residual_or_not": sorted(self.unsure),
            "size": {str(k): v for k, v in self.scale.items()},
        }


def attach(model: Any, layers: int, stream: bool, rows: int) -> bool:
    """Runs on every worker; False where the decoder layers are not found."""
    observer = Observer(model, layers, stream=stream, rows=rows)
    setattr(model, KEPT, observer)
    return observer.inner is not None


def capture(model: Any, ids: list[int]) -> None:
    """Has an engine without a drafter capture: the states are seen by the observer, and kept from
    the runner, which expects none."""
    model.set_aux_hidden_state_layers(tuple(ids))

    def strip(_: Any, __: Any, output: Any) -> Any:
        return output[0] if isinstance(output, tuple) else output

    model.register_forward_hook(strip)


def figures(model: Any) -> dict[str, Any]:
    return getattr(model, KEPT).figures()  # type: ignore[no-any-return]


def states(model: Any, tokens: int) -> dict[str, Any]:
    """The last forward's states of that many tokens, on the CPU."""
    last = getattr(model, KEPT).last
    return {str(k): v[:tokens].detach().float().cpu() for k, v in last.items()}
