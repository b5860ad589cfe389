"""Runs any decoder's real `forward` without torch, on stand-ins that know the true streams.

`codemods.stream` does it for DeepSeek's decoder and all that can be asked of it; here the layers
return what the layer classes of the model return: a deferred residual, a stale one, or none.
"""

from __future__ import annotations
import __future__

import ast
import builtins
from functools import cache
from itertools import islice
from types import SimpleNamespace
from typing import Any

from real import class_in, sources

from vllm_eagle3_patches import codemods, decoder, plan, protocol
from vllm_eagle3_patches.gates.base import Edit
from vllm_eagle3_patches.sources import ClassSite, find_classes
from vllm_eagle3_patches.stream import Stream
from vllm_eagle3_patches.target import Request, find

FLAGS = __future__.annotations.compiler_flag
NORMS = ("norm", "ln_f", "final_layer_norm", "final_layernorm", "norm_f")
# What the forwards under test ask of their config: Granite's and Solar's.
CONFIG = {
    "embedding_multiplier": 2,
    "bskcn_1": (1, 3),
    "bskcn_2": (1, 3),
    "bskcn_3": (2, 4),
    "bskcn_4": (2, 6),
    "bskcn_tv": (0.5, 0.5),
}


class Tensor:
    """A number that, like a tensor, can be changed in place."""

    def __init__(self, value: float) -> None:
        self.value = value

    def _with(self, other: Any) -> float:
        return other.value if isinstance(other, Tensor) else 1 if other is ANY else other

    def __add__(self, other: Any) -> Tensor:
        return Tensor(self.value + self._with(other))

    def __mul__(self, other: Any) -> Tensor:
        return Tensor(self.value * self._with(other))

    def __iadd__(self, other: Any) -> Tensor:
        self.value += self._with(other)
        return self

    def __imul__(self, other: Any) -> Tensor:
        self.value *= self._with(other)
        return self

    __radd__, __rmul__ = __add__, __mul__

    def clone(self) -> Tensor:
        return Tensor(self.value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: Tensor(self.value)


class Anything:
    """What a forward uses and this test does not care for: calling it makes a tensor."""

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        return Tensor(13)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: Any) -> Anything:
        return self

    def __bool__(self) -> bool:
        return False


ANY = Anything()


class Layer:
    """Notes the stream that it gets, then changes what it got in place, as a kernel may."""

    def __init__(self, number: int, kind: Stream, pair: bool, streams: dict[int, float]) -> None:
        self.number, self.kind, self.pair, self.streams = number, kind, pair, streams

    def __getattr__(self, name: str) -> Any:
        return ANY

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = [v for v in (*args, *kwargs.values()) if isinstance(v, Tensor)]
        hidden, residual = given[0], given[1] if len(given) > 1 else None
        deferred = self.kind is Stream.SUM and residual is not None
        stream = hidden.value + (residual.value if deferred and residual else 0)
        self.streams[self.number] = stream
        new, beside = Tensor(3.0**self.number + stream % 7), Tensor(stream)
        if self.kind is not Stream.SUM:
            new, beside = Tensor(new.value + stream), Tensor(-(10.0**9))  # stale
        hidden.value += 10.0**6  # whoever kept a reference, not a copy, sees it
        if residual is not None:
            residual.value += 10.0**7
        total = new.value + (beside.value if self.kind is Stream.SUM else 0)
        self.streams[self.number + 1] = total
        if not self.pair:
            return new
        return new, None if self.kind is Stream.EITHER else beside


class Model:
    """One architecture's decoder before and after the edit of its capture.

    Attributes:
        edit: the edit of the decoder's capture.
        before: the decoder's file as it is installed; `after`: with the edit.
    """

    def __init__(self, version: str, architecture: str) -> None:
        where = sources(version)
        target = find(where, Request(architecture, "any"), version)
        edits = plan.edits_for(where, target)
        [self.edit] = [e for e in edits if e.codemod == "aux_capture"]
        self.version, self.edits = version, edits
        self.before = where.data(self.edit.path).decode()
        self.after = codemods.apply(self.before, [self.edit], self.edit.path)
        forward = ClassSite("", class_in(self.before, self.cls)).method("forward")
        assert forward is not None
        self.loop = decoder.find_loop(forward)

    @property
    def cls(self) -> str:
        return self.edit.arguments["cls"]

    @property
    def kind(self) -> Stream:
        return Stream[self.edit.arguments["stream"].upper()]


@cache
def model(version: str, architecture: str) -> Model:
    return Model(version, architecture)


def edit_of(version: str, architecture: str, codemod: str) -> list[Edit]:
    return [e for e in model(version, architecture).edits if e.codemod == codemod]


@cache
def mixin(version: str) -> type:
    """The release's own `EagleModelMixin`, on one pipeline rank where it asks (0.30.0 on)."""
    (site,) = find_classes(sources(version), protocol.PATH, protocol.MIXIN)
    made = python_class(site.node, (object,))
    made._cache_aux_pp_layout = lambda self: None  # type: ignore[attr-defined]
    return made


def python_class(node: ast.ClassDef, bases: tuple[type, ...], **names: Any) -> type:
    """The class with these bases, without its `__init__` and decorators; whatever else it uses
    stands for anything."""
    new = ast.ClassDef(node.name, [], [], [], [])
    ast.copy_location(new, node)
    new.bases = [ast.copy_location(ast.Starred(ast.Name("_bases", ast.Load()), ast.Load()), node)]
    new.body = [s for s in node.body if getattr(s, "name", "") != "__init__"]
    used = {n.id for n in ast.walk(new) if isinstance(n, ast.Name)} - set(dir(builtins))
    scope: dict[str, Any] = {**dict.fromkeys(used, ANY), "_bases": bases, **names}
    scope.update({n: type(n, (), {}) for n in used if n.endswith("Layer")})  # for isinstance
    module = ast.fix_missing_locations(ast.Module([new], []))
    exec(compile(module, node.name, "exec", FLAGS, dont_inherit=True), scope)
    made = scope[node.name]
    assert isinstance(made, type)
    return made


class Stand:
    """The base of a stand-in: what nobody set is anything."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return ANY


class Run:
    """One pass through the decoder of `source`; see `codemods.stream.Run`."""

    def __init__(
        self,
        of: Model,
        source: str,
        ids: tuple[int, ...] | None = None,
        *,
        layers: int = 7,
        start: int = 0,
        end: int | None = None,
    ) -> None:
        end = layers if end is None else end
        self.streams: dict[int, float] = {}
        rank = SimpleNamespace(is_first_rank=start == 0, is_last_rank=end == layers)
        node = class_in(source, of.cls)
        captures = protocol.MIXIN in map(ast.unparse, node.bases)
        bases = (mixin(of.version), Stand) if captures else (Stand,)
        made = python_class(
            node,
            bases,
            islice=islice,
            IntermediateTensors=dict,
            get_pp_group=lambda: rank,
        )
        self.model = it = made()
        it.start_layer, it.end_layer = start, end
        pair = of.loop.residual is not None
        every = [Layer(n, of.kind, pair, self.streams) for n in range(layers)]
        setattr(it, of.loop.container, every)
        it.config = SimpleNamespace(**CONFIG, num_hidden_layers=layers)
        for name in NORMS:
            setattr(it, name, norm)
        if ids is not None:
            setter = "_set_aux_hidden_state_layers" if captures else protocol.SETTER
            getattr(it, setter)(ids)
        arguments = ClassSite("", node).method("forward")
        assert arguments is not None
        residual = None if of.kind is Stream.EITHER else Tensor(11)
        received = {"hidden_states": Tensor(5), "residual": residual} if start else None
        given = {
            a.arg: received if a.arg == "intermediate_tensors" else None
            for a in arguments.args.args[1:]
            if a.arg in ("intermediate_tensors", "inputs_embeds")
        }
        rest = [a.arg for a in arguments.args.args[1:] if a.arg not in given]
        self.result = plain(it.forward(**given, **dict.fromkeys(rest, "given")))


def norm(hidden: Tensor, residual: Tensor | None = None) -> Any:
    """A final norm; with a residual it returns two values, as the fused ones do."""
    value = Tensor(1000 + hidden.value + (residual.value if residual is not None else 0))
    return value if residual is None else (value, residual)


def plain(value: Any) -> Any:
    """The same value with numbers for tensors."""
    if isinstance(value, Tensor):
        return value.value
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(plain(v) for v in value)
    return value
