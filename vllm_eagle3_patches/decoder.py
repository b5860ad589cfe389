"""Reads a decoder: the loop of its `forward` over the layers, in the forms of all releases."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.sources import ClassSite, Sources, bases, walk


@dataclass(frozen=True)
class Loop:
    """The loop of a decoder's forward over this rank's layers.

    Attributes:
        node: the loop.
        container: the attribute that holds the layers, e.g. "layers" or "h".
        index: the name of the loop's index, None where it has none.
        absolute: whether that index counts from layer 0 on every pipeline rank.
        hidden: the name of the hidden states.
        residual: the name of the residual beside them, None where a layer returns one value.
        calls: the layer calls, all with the same targets.
    """

    node: ast.For
    container: str
    index: str | None
    absolute: bool
    hidden: str
    residual: str | None
    calls: tuple[ast.Call, ...]


_CONTAINERS = ("layers", "h", "blocks")
PLACEHOLDER = "PPMissingLayer"  # for a part that another pipeline rank has; models/utils.py


@dataclass(frozen=True)
class Header:
    """What a loop over layers says of them; `known` is False where it does not run over all of
    this rank's layers in their order, or counts them from another id."""

    container: str
    index: str | None
    absolute: bool
    layer: str
    known: bool = True


def _layers(node: ast.AST) -> str | None:
    """`self.layers`: the attribute's name."""
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and node.attr in _CONTAINERS
    ):
        return node.attr
    return None


def _container(node: ast.expr) -> str | None:
    """`self.layers`, or those of this rank by a slice or `islice`: the attribute's name."""
    if isinstance(node, ast.Subscript):
        rank = ast.unparse(node.slice) == "self.start_layer:self.end_layer"
        return _layers(node.value) if rank else None
    if isinstance(node, ast.Call):
        return _layers(node.args[0]) if _is_islice(node) else None
    return _layers(node)


def _is_islice(call: ast.Call) -> bool:
    """Whether this is `islice(..., self.start_layer, self.end_layer)`."""
    rest = [ast.unparse(a) for a in call.args[1:]]
    rank = rest == ["self.start_layer", "self.end_layer"] and not call.keywords
    return ast.unparse(call.func) == "islice" and rank


def _header(loop: ast.For) -> Header | None:
    """The header of a loop over this rank's layers in their order."""
    source, target = loop.iter, loop.target
    if isinstance(target, ast.Name) and (name := _container(source)):
        return Header(name, None, False, target.id)
    if not isinstance(source, ast.Call):
        return None
    func = ast.unparse(source.func)
    if isinstance(target, ast.Name):
        whole = ast.unparse(source) == "range(self.start_layer, self.end_layer)"
        return _indexed(loop, target.id) if whole else None
    if not isinstance(target, ast.Tuple) or not all(isinstance(e, ast.Name) for e in target.elts):
        return None
    names = [e.id for e in target.elts if isinstance(e, ast.Name)]
    if len(names) != 2 or not source.args:
        return None
    index, layer = names
    if func == "enumerate" and (name := _container(source.args[0])):
        starts = [ast.unparse(k.value) for k in source.keywords]
        starts += [ast.unparse(a) for a in source.args[1:]]
        whole = _layers(source.args[0]) is not None
        if starts == ["self.start_layer"] and not whole:
            return Header(name, index, True, layer)
        return None if starts else Header(name, index, whole, layer)
    inner = source.args[0]
    if _is_islice(source) and isinstance(inner, ast.Call) and len(inner.args) == 1:
        name = _layers(inner.args[0])
        if ast.unparse(inner.func) == "enumerate" and not inner.keywords and name:
            return Header(name, index, True, layer)
    return None


def _indexed(loop: ast.For, index: str) -> Header | None:
    """The header of `for i in range(...): layer = self.layers[i]`."""
    for statement in loop.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Subscript):
            name, target = _layers(statement.value.value), statement.targets[0]
            same = ast.unparse(statement.value.slice) == index
            if name and same and isinstance(target, ast.Name):
                return Header(name, index, True, target.id)
    return None


def _odd_header(loop: ast.For) -> Header | None:
    """The header of a loop that runs layers in a way that is not known."""
    names = [n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)]
    if ast.unparse(loop.iter).startswith("range(") and len(names) == 1:
        found = _indexed(loop, names[0])
        return replace(found, known=False) if found else None
    for node in ast.walk(loop.iter):
        if (name := _layers(node)) and names and _calls(loop, names[-1]):
            return Header(name, None, False, names[-1], known=False)
    return None


def _calls(loop: ast.For, layer: str) -> list[ast.Call]:
    return [
        node
        for node in walk(loop)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == layer
    ]


def loops(forward: ast.FunctionDef) -> list[tuple[ast.For, Header]]:
    """The loops over this rank's layers; where there are none, those that come near."""
    nodes = [node for node in walk(forward) if isinstance(node, ast.For)]
    found = [(node, header) for node in nodes if (header := _header(node))]
    return found or [(node, header) for node in nodes if (header := _odd_header(node))]


def forward_with_loop(
    sources: Sources, site: ClassSite
) -> tuple[ClassSite, ast.FunctionDef] | None:
    """The class in the MRO, and its forward, that runs the layers; a forward nearer by counts as
    one in between if it calls `super().forward`."""
    for owner in bases(sources, site):
        forward = owner.method("forward")
        if forward is None:
            continue
        if loops(forward):
            return owner, forward
        if "super().forward(" not in ast.unparse(forward):
            return None
    return None


def find_loop(forward: ast.FunctionDef) -> Loop:
    """The one loop over the layers at the top of `forward`.

    Raises:
        RefusedError: there is none, or more than one, or it has a form that is not known.
    """
    found = loops(forward)
    if len(found) != 1:
        raise RefusedError(f"{len(found)} loops over decoder layers in forward, not one")
    node, header = found[0]
    if not header.known:
        raise RefusedError(f"the loop iterates `{ast.unparse(node.iter)}`")
    if node not in forward.body:
        raise RefusedError("the loop over the layers stands under a condition")
    if node.orelse or any(isinstance(n, (ast.Break, ast.Continue)) for n in walk(node)):
        raise RefusedError("the loop over the layers has break, continue or else")
    calls = _calls(node, header.layer)
    assigns = [
        n for n in walk(node) if isinstance(n, ast.Assign) and any(n.value is c for c in calls)
    ]
    if not calls or len(assigns) != len(calls):
        raise RefusedError("the loop does not call the layer in an assignment")
    if not _exclusive(node.body, calls):
        raise RefusedError("the loop calls the layer more than once for one id")
    targets = sorted({" = ".join(ast.unparse(t) for t in assign.targets) for assign in assigns})
    if len(targets) != 1:
        raise RefusedError(f"the layer's result goes to {' and to '.join(targets)}")
    target = assigns[0].targets[0]
    residual: str | None = None
    names = [e.id for e in getattr(target, "elts", ()) if isinstance(e, ast.Name)]
    fed = {n.id for call in calls for n in ast.walk(call) if isinstance(n, ast.Name)}
    if len(assigns[0].targets) != 1 or len(names) != len(getattr(target, "elts", names)):
        raise RefusedError(f"the layer's result goes to {targets[0]}")
    if isinstance(target, ast.Name):
        hidden = _renamed(node, target.id, fed)
    elif len(names) >= 2 and not fed & set(names[2:]):  # HunYuan's third are keys and values
        hidden, residual = names[:2]
    else:
        raise RefusedError(f"the layer's result goes to {targets[0]}")
    container, index, absolute = header.container, header.index, header.absolute
    return Loop(node, container, index, absolute, hidden, residual, tuple(calls))


def _renamed(loop: ast.For, result: str, fed: set[str]) -> str:
    """The name the layer's result gets for the next layer (`hidden_states = layer_outputs`)."""
    if result in fed:
        return result
    names = [
        n.targets[0].id
        for n in loop.body
        if isinstance(n, ast.Assign)
        and ast.unparse(n.value) == result
        and isinstance(n.targets[0], ast.Name)
    ]
    return names[0] if len(names) == 1 and names[0] in fed else result


def _exclusive(body: list[ast.stmt], calls: list[ast.Call]) -> bool:
    """Whether at most one of the calls is made on each way through the statements."""
    holding = [s for s in body if any(n is c for n in ast.walk(s) for c in calls)]
    if len(holding) != 1:
        return not holding
    only = holding[0]
    if isinstance(only, ast.If):
        return _exclusive(only.body, calls) and _exclusive(only.orelse, calls)
    if isinstance(only, ast.With):
        return _exclusive(only.body, calls)
    return isinstance(only, ast.Assign)
