"""Edits as pure functions: source text in, source text out.

Each module holds one `transform(module, **arguments) -> module` over a LibCST tree.  It knows
one structure, makes one change, changes nothing when the change is there, and raises
`RefusedError` for anything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

import libcst as cst

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
        module = parse(source, path)
        for edit in edits:
            module = transform(module, edit)
        return module.code
    except RecursionError:
        raise RefusedError("nested too deeply to be edited", where=path) from None


def settled(source: str, edits: Iterable[Edit], path: str) -> bool:
    """Whether the edits change nothing in it any more; raises as `apply`."""
    try:
        module = before = parse(source, path)
        for edit in edits:
            module = transform(module, edit)
        return module is before or module.code == source
    except RecursionError:
        raise RefusedError("nested too deeply to be edited", where=path) from None
