"""What a class's `forward` does with what a part of it gives back: hands it on, or changes it.

With aux hidden states asked for, a decoder returns `(hidden_states, aux_hidden_states)`; every
class between it and the runner must hand that on as it is.
"""

from __future__ import annotations

import ast

from vllm_eagle3_patches.sources import ClassSite, Sources, owner_of, walk


def changed(sources: Sources, site: ClassSite) -> str | None:
    """What the class does to the decoder's result before it returns it, in words, or None."""
    owner = owner_of(sources, site, "forward")
    forward = owner.method("forward") if owner else None
    if owner is None or forward is None:
        return f"{site.name} has no forward"
    for node in walk(forward):
        value = node.value if isinstance(node, ast.Return) else None
        if value is not None and not _handed_on(forward, value, node is forward.body[-1]):
            return f"{owner.name}.forward returns `{ast.unparse(value)}`, changed"
    return None


def _handed_on(forward: ast.FunctionDef, value: ast.expr, at_end: bool = False) -> bool:
    """Whether the value is what a call on a part of self gave, and nothing else."""
    if isinstance(value, ast.Call):
        root = ast.unparse(value.func).split(".")[0]
        return root in ("self", "super()") or _is_part(forward, root)
    if not isinstance(value, ast.Name):
        return False
    given = (_last(forward, value.id) if at_end else []) or _given(forward, value.id)
    return bool(given) and all(isinstance(g, ast.Call) and _handed_on(forward, g) for g in given)


def _last(forward: ast.FunctionDef, name: str) -> list[ast.expr]:
    """What the name surely is at the end: the value of the last statement that sets it, where that
    is a plain assignment; else []."""
    for statement in reversed(forward.body):
        stores = [
            n
            for n in ast.walk(statement)
            if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
        ]
        if stores:
            plain = isinstance(statement, ast.Assign) and statement.targets == stores
            return [statement.value] if plain and isinstance(statement, ast.Assign) else []
    return []


def _is_part(forward: ast.FunctionDef, name: str) -> bool:
    """Whether the local name stands for a part of self, e.g. `model = self.language_model`."""
    given = _given(forward, name)
    return bool(given) and all(ast.unparse(g).split(".")[0] in ("self", name) for g in given)


def _given(forward: ast.FunctionDef, name: str) -> list[ast.expr]:
    """Every value assigned to the local name."""
    return [
        node.value
        for node in walk(forward)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if any(isinstance(t, ast.Name) and t.id == name for t in ast.walk(target))
    ]
