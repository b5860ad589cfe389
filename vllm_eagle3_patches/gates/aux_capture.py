"""Gate `aux-capture`: the decoder's `forward` returns the aux hidden states that were asked for.

Id k is the residual stream on entry to layer k.  A DeepSeek layer defers its residual
(`hidden_states, residual = layer(...)`), so the stream is `hidden_states + residual`.
"""

from __future__ import annotations

import ast

from vllm_eagle3_patches.gates.base import Edit, Finding, State
from vllm_eagle3_patches.sources import ClassSite, Sources, bases
from vllm_eagle3_patches.target import Target

NAME = "aux-capture"
LAYERS = "aux_hidden_state_layers"


def layer_call(statement: ast.stmt) -> tuple[str, str] | None:
    """The names `h, r` of a statement `h, r = layer(...)`."""
    if (
        isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Name)
        and statement.value.func.id == "layer"
        and isinstance(statement.targets[0], ast.Tuple)
    ):
        names = [e.id for e in statement.targets[0].elts if isinstance(e, ast.Name)]
        if len(names) == 2:
            return names[0], names[1]
    return None


def _absolute_index(loop: ast.For) -> str | None:
    """The name of the loop's absolute layer index, `enumerate(..., start=self.start_layer)`."""
    if (
        isinstance(loop.target, ast.Tuple)
        and isinstance(loop.target.elts[0], ast.Name)
        and isinstance(loop.iter, ast.Call)
        and ast.unparse(loop.iter.func) == "enumerate"
        and [ast.unparse(k) for k in loop.iter.keywords] == ["start=self.start_layer"]
    ):
        return loop.target.elts[0].id
    return None


def captures(forward: ast.FunctionDef) -> bool | None:
    """Whether `forward` captures as it must; None where there is no trace of capturing.

    True only for the forms that are known to be right: before the layer's call, for absolute
    ids, the deferred residual added, the list returned beside the hidden states.
    """
    if "aux_hidden" not in ast.dump(forward):
        return None
    for loop in ast.walk(forward):
        if not isinstance(loop, ast.For) or (index := _absolute_index(loop)) is None:
            continue
        calls = [i for i, s in enumerate(loop.body) if layer_call(s)]
        checks = [
            (i, s)
            for i, s in enumerate(loop.body)
            if isinstance(s, ast.If) and ast.unparse(s.test) == f"{index} in self.{LAYERS}"
        ]
        if len(calls) != 1 or len(checks) != 1 or checks[0][0] > calls[0]:
            return False
        names = layer_call(loop.body[calls[0]])
        assert names is not None
        return _takes_stream(checks[0][1], *names) and _returns_pair(forward, names[0])
    return False


def _takes_stream(check: ast.If, hidden: str, residual: str) -> bool:
    stream = f"{hidden} + {residual}"
    guarded = f"if {residual} is None else {stream}"
    allowed = (stream, f"{hidden} {guarded}", f"{hidden}.clone() {guarded}")
    first = check.body[0]
    value = None
    if isinstance(first, ast.Assign):
        value = first.value
    elif isinstance(first, ast.Expr) and isinstance(first.value, ast.Call) and first.value.args:
        value = first.value.args[0]
    return value is not None and ast.unparse(value) in allowed


def _returns_pair(forward: ast.FunctionDef, hidden: str) -> bool:
    return any(
        isinstance(node, ast.Return)
        and node.value is not None
        and ast.unparse(node.value) == f"({hidden}, aux_hidden_states)"
        for node in ast.walk(forward)
    )


def _has_ids(sources: Sources, decoder: ClassSite) -> bool:
    """Whether the class or a base sets `aux_hidden_state_layers`, in its body or `__init__`."""
    return any(
        owner.attribute(LAYERS) is not None
        or f"attr='{LAYERS}', ctx=Store()" in ast.dump(owner.method("__init__") or ast.Pass())
        for owner in bases(sources, decoder)
    )


def inspect(sources: Sources, target: Target) -> Finding:
    worst: Finding | None = None
    for structure in target.structures:
        decoder = structure.decoder
        forward = decoder.method("forward")
        if forward is None:
            detail = f"{decoder.name} has no forward of its own"
            return Finding(NAME, State.REFUSED, decoder.path, decoder.line, detail)
        verdict = captures(forward)
        if verdict is False:
            detail = f"{decoder.name}.forward captures aux hidden states in an unknown form"
            return Finding(NAME, State.REFUSED, decoder.path, forward.lineno, detail)
        if verdict and not _has_ids(sources, decoder):
            detail = f"{decoder.name}.forward reads {LAYERS}, which nothing sets at first"
            return Finding(NAME, State.REFUSED, decoder.path, forward.lineno, detail)
        if verdict is None:
            detail = f"{decoder.name}.forward returns no aux hidden states"
            worst = worst or Finding(NAME, State.CLOSED, decoder.path, forward.lineno, detail)
    if worst is not None:
        return worst
    decoder = target.structures[0].decoder
    forward = decoder.method("forward")
    assert forward is not None
    detail = f"{decoder.name}.forward returns the aux hidden states asked for"
    return Finding(NAME, State.NATIVE, decoder.path, forward.lineno, detail)


def edits(sources: Sources, target: Target) -> list[Edit]:
    found: dict[tuple[str, str], Edit] = {}
    for structure in target.structures:
        site = structure.decoder
        found[site.path, site.name] = Edit(
            NAME, NAME, site.path, (site.name,), "aux_capture", {"cls": site.name}
        )
    return list(found.values())
