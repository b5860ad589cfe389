"""Decides what of a decoder loop's state is the residual stream, by reading the layer classes.

The stream on entry to layer k is, by definition, what layer k itself takes as its residual: so
the layer's `forward` is read, not the decoder's.  A layer that begins with a fused norm of
`hidden_states` and `residual` defers its residual, and the stream is the sum; one that overwrites
`residual` before reading it got the complete stream in `hidden_states`, whatever came beside it.
Where such a layer hands on None as its residual, "add it unless it is None" is right for both.
"""

from __future__ import annotations

import ast
from enum import Enum

from vllm_eagle3_patches.decoder import PLACEHOLDER, Loop
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.sources import (
    ClassSite,
    Sources,
    assigned,
    bases,
    default_of,
    find_classes,
    owner_of,
    walk,
)

# Norms whose two-argument call adds the residual first and returns (normed, sum); source:
# vllm/model_executor/layers/layernorm.py, all versions.
FUSED_NORMS = frozenset({"RMSNorm", "GemmaRMSNorm"})
NORM_MODULE = "vllm/model_executor/layers/layernorm.py"


class Stream(Enum):
    """What the residual stream is, in terms of the loop's variables."""

    SUM = "hidden_states + residual"
    HIDDEN = "hidden_states"
    EITHER = "hidden_states, and residual unless it is None"


def layer_classes(sources: Sources, decoder: ClassSite, container: str) -> list[ClassSite]:
    """The classes of the layers, from what `__init__` puts into the container.

    Raises:
        RefusedError: they cannot be named.
    """
    for owner in bases(sources, decoder):
        init = owner.method("__init__")
        if init is None:
            continue
        for node in walk(init):
            if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            stored = [
                n
                for t in targets
                for n in ast.walk(t)
                if isinstance(n, ast.Attribute) and n.attr == container
            ]
            if stored:
                found = _constructed(sources, decoder, owner, init, node.value)
                if found:
                    return found
    raise RefusedError(f"the class of the layers in self.{container} is not certain")


def _constructed(
    sources: Sources, site: ClassSite, owner: ClassSite, init: ast.FunctionDef, value: ast.expr
) -> list[ClassSite]:
    """The layer classes constructed inside an expression, local functions and defaults followed."""
    found: dict[tuple[str, str], ClassSite] = {}
    seen: set[str] = set()

    def named(name: str, holder: ClassSite) -> None:
        for cls in find_classes(sources, holder.path, name):
            if owner_of(sources, cls, "forward"):
                found[cls.path, cls.name] = cls

    def visit_all(values: list[ast.expr]) -> None:
        for node in values:
            visit(node)

    def visit(node: ast.AST) -> None:
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and child.id not in seen:
                seen.add(child.id)
                named(child.id, owner)
                for statement in sources.tree(owner.path).body:
                    if isinstance(statement, ast.Assign):
                        visit_all(assigned(statement, child.id))
                for inner in walk(init):
                    if isinstance(inner, ast.FunctionDef) and inner.name == child.id:
                        visit(inner)
                    elif (
                        isinstance(inner, ast.Call)
                        and ast.unparse(inner.func) == f"{child.id}.append"
                    ):
                        visit(inner.args[0])
                default = default_of(init, child.id)
                visit_all([*assigned(init, child.id), *([default] if default else [])])
            elif isinstance(child, ast.Attribute) and ast.unparse(child.value) == "self":
                for holder in bases(sources, site):
                    attribute = holder.attribute(child.attr)
                    if isinstance(attribute, ast.Name):
                        named(attribute.id, holder)

    visit(value)
    return [c for c in found.values() if c.name != PLACEHOLDER]


def stream_of(sources: Sources, loop: Loop, layers: list[ClassSite]) -> Stream:
    """What the stream is on entry to a layer.

    Raises:
        RefusedError: a layer's way is not known, or two layers differ.
    """
    verdicts = {_consumes(sources, layer, call, loop) for layer in layers for call in loop.calls}
    if verdicts == {Stream.SUM, Stream.EITHER}:
        return Stream.EITHER
    if len(verdicts) != 1:
        raise RefusedError("the layers do not agree on what the residual stream is")
    return verdicts.pop()


def _parameter(forward: ast.FunctionDef, call: ast.Call, name: str) -> str | None:
    """The parameter of the layer's forward that gets the loop's variable `name`."""
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.Name) and keyword.value.id == name:
            return keyword.arg
    for position, argument in enumerate(call.args):
        if isinstance(argument, ast.Name) and argument.id == name:
            names = [a.arg for a in forward.args.posonlyargs + forward.args.args][1:]
            return names[position] if position < len(names) else None
    return None


def _consumes(sources: Sources, layer: ClassSite, call: ast.Call, loop: Loop) -> Stream:
    owner = owner_of(sources, layer, "forward")
    if owner is None:
        raise RefusedError(f"{layer.name} has no forward")
    forward = owner.method("forward")
    assert forward is not None
    hidden = _parameter(forward, call, loop.hidden)
    if hidden is None:
        raise RefusedError(f"{layer.name}.forward does not take {loop.hidden}")
    if loop.residual is None:
        return Stream.HIDDEN
    residual = _parameter(forward, call, loop.residual)
    if residual is None:
        stream = Stream.HIDDEN
    else:
        stream = _first_use(sources, owner, forward, hidden, residual)
    if stream is Stream.HIDDEN and _returns_none(forward):
        return Stream.EITHER
    return stream


def _returns_none(forward: ast.FunctionDef) -> bool:
    """Whether None is what the layer always hands on as its residual."""
    nodes = [n for n in walk(forward) if isinstance(n, ast.Return)]
    if len(nodes) != 1 or nodes[0] is not forward.body[-1]:
        return False
    value = nodes[0].value
    if not isinstance(value, ast.Tuple) or len(value.elts) != 2:
        return False
    last = ast.unparse(value.elts[1])
    return last == "None" or ast.unparse(forward.body[-2]) == f"{last} = None"


def _first_use(
    sources: Sources, owner: ClassSite, forward: ast.FunctionDef, hidden: str, residual: str
) -> Stream:
    """How the layer begins: by adding the residual it got, or by overwriting it."""
    where = f"{owner.path}:{forward.lineno}"
    for statement in forward.body:
        names = [n for n in ast.walk(statement) if isinstance(n, ast.Name)]
        if not any(n.id == residual for n in names):
            if any(n.id == hidden and isinstance(n.ctx, ast.Store) for n in names):
                raise RefusedError(
                    f"{owner.name} changes {hidden} before its residual", where=where
                )
            continue
        if isinstance(statement, ast.Assign) and _overwrites(statement, residual):
            return Stream.HIDDEN
        if isinstance(statement, ast.If) and _adds_unless_none(
            sources, owner, statement, hidden, residual
        ):
            return Stream.SUM
        if isinstance(statement, ast.Assign) and _fused(
            sources, owner, statement, hidden, residual
        ):
            return Stream.SUM
        text = ast.unparse(statement).splitlines()[0]
        raise RefusedError(
            f"{owner.name} uses its residual in a way that is not known: {text}",
            where=f"{owner.path}:{statement.lineno}",
        )
    return Stream.HIDDEN


def _overwrites(statement: ast.Assign, residual: str) -> bool:
    return (
        len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
        and statement.targets[0].id == residual
        and not any(isinstance(n, ast.Name) and n.id == residual for n in ast.walk(statement.value))
    )


def _adds_unless_none(
    sources: Sources, owner: ClassSite, node: ast.If, hidden: str, residual: str
) -> bool:
    """`if residual is None: residual = hidden; hidden = norm(hidden) else: fused norm`."""
    test = ast.unparse(node.test)
    if test == f"{residual} is None":
        first, other = node.body, node.orelse
    elif test == f"{residual} is not None":
        first, other = node.orelse, node.body
    else:
        return False
    if len(other) != 1 or not isinstance(other[0], ast.Assign):
        return False
    if not _fused(sources, owner, other[0], hidden, residual):
        return False
    return bool(first) and ast.unparse(first[0]) in (
        f"{residual} = {hidden}",
        f"{residual} = {hidden}.clone()",
    )


def _fused(
    sources: Sources, owner: ClassSite, statement: ast.Assign, hidden: str, residual: str
) -> bool:
    """`hidden, residual = self.norm(hidden, residual)` with a norm that adds before it norms."""
    call = statement.value
    if ast.unparse(statement.targets[0]) != f"({hidden}, {residual})":
        return False
    if isinstance(call, ast.Tuple):  # Jais2: `norm(hidden + residual), hidden + residual`
        total = f"{hidden} + {residual}"
        first, second = (ast.unparse(e) for e in call.elts)
        return second == total and first.startswith("self.") and first.endswith(f"({total})")
    if not isinstance(call, ast.Call):
        return False
    values = [ast.unparse(a) for a in call.args] + [ast.unparse(k.value) for k in call.keywords]
    func = call.func.value if isinstance(call.func, ast.Subscript) else call.func
    if values != [hidden, residual] or not ast.unparse(func).startswith("self."):
        return False
    attribute = ast.unparse(func).removeprefix("self.")
    norms = _norm_classes(sources, owner, attribute)
    return bool(norms) and all(_adds_first(norm) for norm in norms)


def _adds_first(norm: ClassSite) -> bool:
    """Whether a norm called with two arguments adds the second before it norms."""
    if norm.path == NORM_MODULE:
        return norm.name in FUSED_NORMS
    forward = norm.method("forward_native") or norm.method("forward")
    for node in walk(forward) if forward else ():
        if isinstance(node, ast.If) and ast.unparse(node.test) == "residual is not None":
            body = [ast.unparse(s) for s in node.body]
            return body[:2] == ["x = x + residual", "residual = x"]
    return False


def _norm_classes(sources: Sources, owner: ClassSite, attribute: str) -> list[ClassSite]:
    """The classes behind a norm attribute, [] where one of them is not vLLM's."""
    found: list[ClassSite] = []
    for holder in bases(sources, owner):
        init = holder.method("__init__")
        for node in walk(init) if init else ():
            if isinstance(node, ast.Assign) and any(
                ast.unparse(t) == f"self.{attribute}" for t in node.targets
            ):
                for n in ast.walk(node.value):
                    if isinstance(n, ast.Call) and isinstance(n.func, ast.Name):
                        classes = find_classes(sources, holder.path, n.func.id)
                        if not classes and n.func.id not in ("range", "len", "getattr"):
                            return []
                        found += classes
        if found:
            break
    return found


def drops_residual(forward: ast.FunctionDef, loop: Loop) -> bool:
    """Whether nothing behind the loop reads the residual, but the hand-over to the next stage."""
    behind = [n for s in forward.body[forward.body.index(loop.node) + 1 :] for n in ast.walk(s)]
    handed = [
        name
        for node in behind
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "IntermediateTensors"
        for name in ast.walk(node)
    ]
    return not any(
        isinstance(n, ast.Name) and n.id == loop.residual and isinstance(n.ctx, ast.Load)
        for n in behind
        if not any(n is h for h in handed)
    )


# Calls that change the shape of what goes into the loop: several streams instead of one.
RESHAPING = frozenset({"repeat", "expand", "unsqueeze", "stack", "view", "reshape", "unflatten"})


def is_cross_attending(loop: Loop) -> bool:
    """Whether the layers are given the states of an encoder."""
    names = {
        name
        for call in loop.calls
        for node in ast.walk(call)
        for name in (getattr(node, "id", None), getattr(node, "arg", None))
    }
    return any(name is not None and "encoder" in name for name in names)


def single_stream(forward: ast.FunctionDef, loop: Loop) -> None:
    """Raises RefusedError where the loop's state is not one stream of the embedding's shape."""
    for statement in forward.body:
        if statement is loop.node:
            return
        for node in ast.walk(statement):
            if (
                isinstance(node, ast.Assign)
                and any(ast.unparse(t) == loop.hidden for t in node.targets)
                and isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Attribute)
                and node.value.func.attr in RESHAPING
            ):
                raise RefusedError(f"several streams: {ast.unparse(node)}")
