"""Which aux layer ids the target's decoder captures: read from its `forward`.

Forms known: the stream on entry (`if idx in self.aux_hidden_state_layers: …` before the layer's
call), and the stream after a layer as id + 1 (`_maybe_add_hidden_state(aux, idx + 1, …)`, from
0.18.0), each with the ids of the embedding and of the last layer where the code has them.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from vllm_eagle3_patches import registry
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.aux_capture import LAYERS
from vllm_eagle3_patches.sources import ClassSite, Sources, bases, find_classes

ADD = "_maybe_add_hidden_state"
MIXIN = "EagleModelMixin"


@dataclass(frozen=True)
class Capture:
    """What a decoder captures, on one pipeline stage.

    Attributes:
        site: the class whose `forward` this is.
        line: where that is.
        first: whether id 0 works; None where asking for it raises.
        last: whether the id that equals the number of layers is captured.
        absolute: whether ids count from the model's first layer, not the stage's.
    """

    site: ClassSite
    line: int
    first: bool | None
    last: bool
    absolute: bool

    def captured(self, ids: tuple[int, ...], layers: int) -> tuple[int, ...]:
        """The ids of which a state is returned; each once, in the order of the layers."""
        reachable = range(0 if self.first else 1, layers + (1 if self.last else 0))
        return tuple(sorted({i for i in ids if i in reachable}))


def of_target(sources: Sources, architecture: str) -> Capture | None:
    """The decoder's capture; None where it has none, or none in a form that is known."""
    decoder = decoder_of(sources, architecture)
    if decoder is None:
        return None
    for owner in bases(sources, decoder):
        forward = owner.method("forward")
        if forward is not None:
            return _read(owner, forward)
    return None


def decoder_of(sources: Sources, architecture: str) -> ClassSite | None:
    """The class that runs the layers, as far as it can be named without the model's config."""
    entry = registry.read(sources).get(architecture)
    if entry is None:
        return None
    try:
        site: ClassSite | None = registry.classes(sources, entry)[0]
        for _ in range(4):  # wrapper, causal model, decoder
            following = _inner(sources, site) if site else None
            if following is None:
                break
            site = following
        return site
    except RefusedError:
        return None


def _inner(sources: Sources, site: ClassSite) -> ClassSite | None:
    """The class in `self.model`, or in a wrapper's `self.language_model`."""
    for attribute in ("model", "language_model"):
        for owner in bases(sources, site):
            init = owner.method("__init__")
            for node in ast.walk(init) if init else ():
                if (
                    isinstance(node, ast.Assign)
                    and isinstance(node.value, ast.Call)
                    and f"self.{attribute}" in map(ast.unparse, node.targets)
                ):
                    return _made(sources, site, owner, node.value)
    return None


def _made(sources: Sources, site: ClassSite, owner: ClassSite, call: ast.Call) -> ClassSite | None:
    """The class of `Name(…)`, `self.method(…)`, or a registered model named by a constant."""
    func = call.func
    if isinstance(func, ast.Attribute) and ast.unparse(func.value) == "self":
        for holder in bases(sources, site):
            value = holder.attribute(func.attr)
            method = holder.method(func.attr)
            returned = [
                n.value.func
                for n in (ast.walk(method) if method else ())
                if isinstance(n, ast.Return) and isinstance(n.value, ast.Call)
            ]
            for name in [value, *returned]:
                if isinstance(name, ast.Name):
                    return _only(find_classes(sources, holder.path, name.id))
        return None
    if not isinstance(func, ast.Name):
        return None
    if func.id != "init_vllm_registered_model":
        return _only(find_classes(sources, owner.path, func.id))
    for keyword in call.keywords:
        if keyword.arg == "architectures" and isinstance(keyword.value, ast.List):
            names = [e.value for e in keyword.value.elts if isinstance(e, ast.Constant)]
            entry = registry.read(sources).get(str(names[0])) if len(names) == 1 else None
            return _only(registry.classes(sources, entry)) if entry else None
    return None


def _only(found: list[ClassSite]) -> ClassSite | None:
    return found[0] if len(found) == 1 else None


def _read(site: ClassSite, forward: ast.FunctionDef) -> Capture | None:
    loops = [n for n in ast.walk(forward) if isinstance(n, ast.For) and _index(n)]
    for loop in loops:
        index = _index(loop)
        asked = [_asked(n) for n in ast.walk(loop)]
        inside = {text for text in asked if text}
        outside = {t for n in ast.walk(forward) if (t := _asked(n))} - inside
        if inside == {index}:
            after = False
        elif inside == {f"{index} + 1"}:
            after = True
        else:
            continue
        first: bool | None = bool(outside & {"0", "self.start_layer"}) if after else True
        if not after and _adds_unguarded(loop) and "residual = None" in ast.unparse(forward):
            first = None
        last = after or "self.end_layer" in outside
        return Capture(site, forward.lineno, first, last, _absolute(loop))
    return None


def _index(loop: ast.For) -> str | None:
    """The name of the layer's index in `enumerate(…)` or `range(self.start_layer, …)`."""
    if not isinstance(loop.iter, ast.Call):
        return None
    name = ast.unparse(loop.iter.func)
    if name == "range" and isinstance(loop.target, ast.Name):
        return loop.target.id
    if name == "enumerate" and isinstance(loop.target, ast.Tuple):
        first = loop.target.elts[0]
        return first.id if isinstance(first, ast.Name) else None
    return None


def _absolute(loop: ast.For) -> bool:
    assert isinstance(loop.iter, ast.Call)
    if ast.unparse(loop.iter.func) == "range":
        return ast.unparse(loop.iter.args[0]) == "self.start_layer"
    return any(k.arg == "start" for k in loop.iter.keywords) or len(loop.iter.args) > 1


def _asked(node: ast.AST) -> str | None:
    """The id that a test of the asked ids, or a call of the mixin's method, stands for."""
    if (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.In)
        and ast.unparse(node.comparators[0]) == f"self.{LAYERS}"
    ):
        return ast.unparse(node.left)
    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(ADD) and len(node.args) > 1:
        return ast.unparse(node.args[1])
    return None


def _adds_unguarded(loop: ast.For) -> bool:
    """Whether a captured value is `hidden + residual` with no case for `residual is None`."""
    for node in ast.walk(loop):
        if isinstance(node, ast.If) and LAYERS in ast.unparse(node.test):
            text = "\n".join(map(ast.unparse, node.body))
            return "+ residual" in text and "residual is None" not in text
    return False
