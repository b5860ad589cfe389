"""Edits as pure functions: source text in, source text out.

Each module holds one `transform(module, **arguments) -> module` over a LibCST tree.  It knows
one structure, makes one change, changes nothing when the change is there, and raises
`RefusedError` for anything else.  Its `READS` names the methods whose text it looks into, where
that is not the whole class.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from importlib import import_module

import libcst as cst

from vllm_eagle3_patches.codemods import excerpt
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import Edit


def parse(source: str, path: str) -> cst.Module:
    """Raises RefusedError when the text is not Python this LibCST can read."""
    try:
        return cst.parse_module(source)
    except cst.ParserSyntaxError as error:
        raise RefusedError(f"not valid Python: {error.message}", where=path) from None


def transform(module: cst.Module, edit: Edit) -> cst.Module:
    """One edit on a parsed file.

    Raises:
        RefusedError: the structure is not the one the codemod knows; names file and class.
    """
    try:
        result = import_module(f"{__name__}.{edit.codemod}").transform(module, **edit.arguments)
    except RefusedError as error:
        where = f"{edit.path}, {', '.join(edit.scopes)}"
        raise RefusedError(f"{edit.name}: {error.what}", where=where) from None
    assert isinstance(result, cst.Module)
    return result


def apply(source: str, edits: Iterable[Edit], path: str) -> str:
    """All edits of one file, in order; the text itself when none changes anything.

    Raises:
        RefusedError: as `parse` and `transform`.
    """
    try:
        part, _, module = _edited(source, list(edits), path)
        return part.restored(module.code)
    except RecursionError:
        raise RefusedError("nested too deeply to be edited", where=path) from None


def settled(source: str, edits: Iterable[Edit], path: str) -> bool:
    """Whether the edits change nothing in it any more; raises as `apply`."""
    try:
        part, before, module = _edited(source, list(edits), path)
        return module is before or part.restored(module.code) == source
    except RecursionError:
        raise RefusedError("nested too deeply to be edited", where=path) from None


def _edited(
    source: str, edits: Sequence[Edit], path: str
) -> tuple[excerpt.Excerpt, cst.Module, cst.Module]:
    """What is parsed of the file, and that before and after the edits."""
    part = excerpt.cut(source, _scopes(edits))
    before = module = parse(part.text, path)
    for edit in edits:
        module = transform(module, edit)
    return part, before, module


def _scopes(edits: Iterable[Edit]) -> dict[str, Collection[str] | None]:
    """Class -> the methods that the edits' codemods read, None for all."""
    scopes: dict[str, Collection[str] | None] = {}
    for edit in edits:
        read = getattr(import_module(f"{__name__}.{edit.codemod}"), "READS", None)
        for scope in {*edit.scopes, edit.arguments.get("cls", "")}:
            known = scopes.get(scope, ())
            scopes[scope] = None if known is None or read is None else {*known, *read}
    return scopes
