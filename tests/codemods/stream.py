"""Runs the decoder's real `forward` without torch, on stand-ins that remember what went through."""

from __future__ import annotations
import __future__

import ast
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from itertools import islice
from types import SimpleNamespace
from typing import Any

from real import class_in

DECODER = "DeepseekV2Model"


class Tensor:
    """A number that, like a tensor, can be changed in place."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __add__(self, other: Tensor) -> Tensor:
        return Tensor(self.value + other.value)

    def clone(self) -> Tensor:
        return Tensor(self.value)


class Layer:
    """Notes the residual stream on entry, then changes it in place as a fused kernel may."""

    def __init__(self, number: int, streams: dict[int, int], calls: list[tuple[Any, ...]]) -> None:
        self.number, self.streams, self.calls = number, streams, calls

    def __call__(
        self, positions: object, hidden: Tensor, residual: Tensor | None, *more: object
    ) -> tuple[Tensor, Tensor]:
        stream = hidden.value + (residual.value if residual else 0)
        self.streams[self.number] = stream
        self.calls.append((self.number, positions, hidden.value, residual and residual.value, more))
        hidden.value += 10**6  # whoever kept a reference, not a copy, sees it
        if residual:
            residual.value += 10**7
        return Tensor(3**self.number + stream % 7), Tensor(stream)


class Run:
    """One pass through a decoder class that was made from `source`.

    Attributes:
        result: what `forward` returned, or the exception, with tensors as numbers.
        streams: id -> residual stream on entry to that layer; the one after the last layer too.
        calls: the arguments of each layer's call.
    """

    def __init__(
        self,
        source: str,
        ids: tuple[int, ...] | None = None,
        *,
        layers: int = 7,
        start: int = 0,
        end: int | None = None,
    ) -> None:
        end = layers if end is None else end
        self.streams: dict[int, int] = {}
        self.calls: list[tuple[Any, ...]] = []
        model = decoder(source, start == 0, end == layers)
        model.start_layer, model.end_layer = start, end
        model.layers = [Layer(n, self.streams, self.calls) for n in range(layers)]
        model.norm = self._norm
        self.end = end
        model.embed_tokens = lambda ids: Tensor(ids)
        model.config = SimpleNamespace(llama_4_scaling={
            "original_max_position_embeddings": 1, "beta": 2
        })  # fmt: skip
        self.model = model
        if ids is not None:
            model.set_aux_hidden_state_layers(ids)
        received = {"hidden_states": Tensor(5), "residual": Tensor(11)} if start else None
        try:
            self.result = plain(model.forward(17, "positions", received))
        except Exception as error:
            self.result = type(error), str(error)

    def _norm(self, hidden: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        self.streams[self.end] = hidden.value + residual.value
        hidden.value, residual.value = 1000 + hidden.value, 2000 + residual.value
        return hidden, residual

    @property
    def aux(self) -> list[int]:
        """The aux hidden states that came with the result."""
        _, aux = self.result
        return aux


def plain(value: Any) -> Any:
    """The same value with numbers for tensors."""
    if isinstance(value, Tensor):
        return value.value
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(v) for v in value)
    return value


def decoder(source: str, first: bool, last: bool) -> Any:
    """An instance of the decoder class of `source`, on such a pipeline rank."""
    whole = class_in(source, DECODER)
    node = ast.ClassDef(DECODER, whole.bases, [], [], [])
    ast.copy_location(node, whole)
    node.body = [s for s in whole.body if getattr(s, "name", "") != "__init__"]
    rank = SimpleNamespace(is_first_rank=first, is_last_rank=last)
    names: dict[str, Any] = {
        "nn": SimpleNamespace(Module=object),
        "islice": islice,
        "nullcontext": nullcontext,
        "IntermediateTensors": dict,
        "get_pp_group": lambda: rank,
        "_get_llama_4_scaling": lambda **given: tuple(sorted(given.items())),
    }
    flags = __future__.annotations.compiler_flag
    exec(compile(ast.Module([node], []), DECODER, "exec", flags, dont_inherit=True), names)
    make: Callable[[], Any] = names[DECODER]
    return make()


def expected(run: Run, ids: Iterable[int]) -> list[int]:
    """The streams that these ids stand for, in the order of the layers."""
    return [run.streams[k] for k in sorted(ids)]
