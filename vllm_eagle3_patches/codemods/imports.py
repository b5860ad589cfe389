"""Adds one name to the imports of a file, as its formatter would have sorted it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import libcst as cst

from vllm_eagle3_patches.codemods.syntax import build, code
from vllm_eagle3_patches.errors import RefusedError

LIMIT = 80  # columns, the narrower of vLLM's two formatter limits


def _import_at(statement: cst.CSTNode) -> cst.ImportFrom | None:
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        small = statement.body[0]
        if isinstance(small, cst.ImportFrom) and not isinstance(small.names, cst.ImportStar):
            return small
    return None


def _module_of(node: cst.ImportFrom) -> str:
    dots = "." * len(node.relative)
    return dots + (code(node.module) if node.module is not None else "")


def _names(node: cst.ImportFrom) -> list[str]:
    return [code(alias.name) for alias in cast(Sequence[cst.ImportAlias], node.names)]


def bound(module: cst.Module, name: str) -> bool:
    """Whether a top-level `from ... import name` is there, not `as` another name."""
    return any(
        code(alias.name) == name and alias.asname is None
        for statement in module.body
        if (node := _import_at(statement)) is not None
        for alias in cast(Sequence[cst.ImportAlias], node.names)
    )


def add_beside(module: cst.Module, name: str, siblings: tuple[str, ...]) -> cst.Module:
    """`name` added to the top-level `from` import that ends in a sibling module, e.g. `interfaces`.

    Raises:
        RefusedError: there is not exactly one such import, or it has comments or `as` names.
    """
    if bound(module, name):
        return module
    found = [
        (i, node)
        for i, s in enumerate(module.body)
        if (node := _import_at(s)) is not None and _module_of(node) in siblings
    ]
    if not found:
        return _add_new(module, name, siblings)
    if len(found) != 1:
        raise RefusedError(
            f"{len(found)} imports from {' or '.join(siblings)}, where one was expected"
        )
    index, node = found[0]
    if "#" in code(node) or any(a.asname for a in cast(Sequence[cst.ImportAlias], node.names)):
        raise RefusedError(f"the import from {_module_of(node)} has comments or `as` names")
    names = sorted([*_names(node), name])
    source = _module_of(node)
    line = f"from {source} import {', '.join(names)}"
    if node.lpar is not None or len(line) > LIMIT:
        indent = module.default_indent
        line = "\n".join([f"from {source} import (", *(f"{indent}{n}," for n in names), ")"])
    new = cast(cst.SimpleStatementLine, build(line, module)[0])
    old = cast(cst.SimpleStatementLine, module.body[index])
    changed = old.with_changes(body=new.body)
    return module.with_changes(body=[*module.body[:index], changed, *module.body[index + 1 :]])


def _add_new(module: cst.Module, name: str, siblings: tuple[str, ...]) -> cst.Module:
    """A new import of `name`, sorted in among the relative ones, else among vLLM's own."""
    relative = [i for i, s in enumerate(module.body) if _from(s).startswith(".")]
    own = [i for i, s in enumerate(module.body) if _from(s).startswith("vllm.")]
    if not relative and not own:
        raise RefusedError("the file imports nothing of vLLM")
    source = siblings[0] if relative else siblings[1]
    among = relative or own
    behind = [i for i in among if _from(module.body[i]) > source]
    new = cast(cst.SimpleStatementLine, build(f"from {source} import {name}", module)[0])
    body = list(module.body)
    if behind:
        old = cast(cst.SimpleStatementLine, body[behind[0]])
        new = new.with_changes(leading_lines=old.leading_lines)
        body[behind[0]] = old.with_changes(leading_lines=[])
        body.insert(behind[0], new)
    else:
        body.insert(among[-1] + 1, new)
    return module.with_changes(body=body)


def _from(statement: cst.CSTNode) -> str:
    """The module a top-level `from` import names, "" for any other statement."""
    node = _import_at(statement)
    return _module_of(node) if node is not None else ""


def add_stdlib(module: cst.Module, source: str, name: str) -> cst.Module:
    """`from source import name` at its sorted place in the first block of imports.

    Raises:
        RefusedError: the file does not begin with a block of imports.
    """
    if bound(module, name):
        return module
    body = list(module.body)
    start = next((i for i, s in enumerate(body) if _is_import(s)), None)
    if start is None or start > 1:
        raise RefusedError("the file does not begin with its imports")
    end = start + 1
    while end < len(body) and _is_import(body[end]) and not _leading(body[end]):
        end += 1
    place = end
    for i in range(start, end):
        node = _import_at(body[i])
        if node is not None and _module_of(node) > source:
            place = i
            break
    if place == start:
        raise RefusedError("the first import block has no place for a standard-library import")
    new = build(f"from {source} import {name}", module)
    return module.with_changes(body=[*body[:place], *new, *body[place:]])


def _is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(
        statement.body[0], (cst.Import, cst.ImportFrom)
    )


def _leading(statement: cst.CSTNode) -> bool:
    return bool(cast(cst.SimpleStatementLine, statement).leading_lines)
