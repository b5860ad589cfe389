"""What must hold of edited files before a byte is written.  Each proof raises RefusedError."""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import zip_longest

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import Edit
from vllm_eagle3_patches.sources import decode, lines, shared_tree

MODULE_NAMES = frozenset(
    {"__name__", "__file__", "__doc__", "__package__", "__spec__", "__loader__", "__path__"}
)


@lru_cache(maxsize=64)
def compiles(path: str, after: bytes) -> None:
    """The file is valid Python."""
    try:
        compile(after, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise RefusedError(f"the edited file does not compile: {error}", where=path) from None


def stays_in_scope(path: str, before: str, after: str, edits: Iterable[Edit]) -> None:
    """Nothing changed at the top level but the edits' classes and added imports."""
    scopes = {scope for edit in edits for scope in edit.scopes}

    old, new = shared_tree(before.encode()), shared_tree(after.encode())

    def outside(module: ast.Module) -> list[ast.stmt]:
        return [
            s
            for s in module.body
            if getattr(s, "name", None) not in scopes
            and not isinstance(s, (ast.Import, ast.ImportFrom))
        ]

    pairs = zip_longest(outside(old), outside(new))
    texts = lines(before), lines(after)
    if not all(a and b and _same(a, b, *texts) for a, b in pairs):
        raise RefusedError(f"an edit reached beyond {', '.join(sorted(scopes))}", where=path)
    lost = _imported(old) - _imported(new)
    if lost:
        raise RefusedError(f"an edit lost the import of {', '.join(sorted(lost))}", where=path)


def _same(a: ast.stmt, b: ast.stmt, before: list[str], after: list[str]) -> bool:
    """Whether two statements are equal; where their text is, there is no need to compare trees."""
    return _text(a, before) == _text(b, after) or ast.dump(a) == ast.dump(b)


def _text(node: ast.stmt, of: list[str]) -> tuple[int, int | None, list[str]]:
    """The lines a top-level statement stands on, and where in the first and last of them."""
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    return node.col_offset, node.end_col_offset, of[first - 1 : node.end_lineno]


def _imported(module: ast.Module) -> set[str]:
    return {
        alias.asname or alias.name
        for s in module.body
        if isinstance(s, (ast.Import, ast.ImportFrom))
        for alias in s.names
    }


def names_are_bound(path: str, before: str, after: str) -> None:
    """Each global name the edited file uses, and did not use before, is defined in it."""
    top = symtable.symtable(after, path, "exec")
    bound = {s.get_name() for s in top.get_symbols() if s.is_assigned() or s.is_imported()}
    bound |= {child.get_name() for child in top.get_children()}
    known = bound | set(dir(builtins)) | MODULE_NAMES
    missing = _globals_used(top) - known
    if missing:
        missing -= _globals_used(symtable.symtable(before, path, "exec"))
    if missing:
        names = ", ".join(sorted(missing))
        raise RefusedError(f"an edit uses {names}, which the file does not define", where=path)


def _globals_used(table: symtable.SymbolTable) -> set[str]:
    used = {
        s.get_name()
        for s in table.get_symbols()
        if s.is_referenced() and (s.is_global() or table.get_type() == "module")
    }
    return used.union(*(_globals_used(child) for child in table.get_children()))


def codemods_settled(path: str, before: bytes, after: bytes, edits: Sequence[Edit]) -> None:
    """A second run changes nothing, and the change lies where it was meant to."""
    from vllm_eagle3_patches import codemods

    old, new = decode(before, path), decode(after, path)
    if not codemods.settled(new, edits, path):
        raise RefusedError("a second run of the edits would change the file again", where=path)
    stays_in_scope(path, old, new, edits)
    names_are_bound(path, old, new)
