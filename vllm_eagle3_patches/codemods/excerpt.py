"""The part of a file that edits are about; the rest of it is held back as it is.

LibCST takes some 60 times as long as `ast` for the same text, and nearly all of a file is of no
concern to an edit.  So top-level classes and functions beside the edits' own, and the methods
whose text no codemod reads, become one-line placeholders of the same name before LibCST parses,
and their text is put back afterwards, character for character.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from vllm_eagle3_patches import sources
from vllm_eagle3_patches.errors import RefusedError

MARK = "text held back by vllm-eagle3-patch, part "
_PLACEHOLDER = re.compile(rf'(?:class \w+|def \w+\(\)): "{re.escape(MARK)}(\d+)"')


@dataclass(frozen=True)
class Excerpt:
    """`text` is valid Python that round-trips; `parts` is what its placeholders stand for."""

    text: str
    parts: tuple[str, ...] = ()

    def restored(self, text: str) -> str:
        """The edited excerpt with every part put back.

        Raises:
            RefusedError: a placeholder is not there exactly once.
        """
        if [int(n) for n in _PLACEHOLDER.findall(text)] != list(range(len(self.parts))):
            raise RefusedError("an edit moved or lost a part of the file that it does not concern")
        return _PLACEHOLDER.sub(lambda match: self.parts[int(match[1])], text)


def cut(source: str, scopes: Mapping[str, Collection[str] | None]) -> Excerpt:
    """The file for edits of the classes in `scopes`, each with the methods that are read (None:
    all); the whole file where it cannot be cut with certainty."""
    try:
        tree = sources.shared_tree(source.encode())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Excerpt(source)
    if MARK in source:
        return Excerpt(source)
    lines = [*sources.lines(source), ""]
    text: list[str] = []
    parts: list[str] = []
    line, column = 0, 0  # behind the last part
    for node in _held_back(tree, scopes):
        first = min([node.lineno, *(d.lineno for d in node.decorator_list)]) - 1
        last = (node.end_lineno or node.lineno) - 1
        start = len(lines[first]) - len(lines[first].lstrip(" \t"))
        end = len(lines[last].encode()[: node.end_col_offset].decode())
        rest = lines[last][end:].strip()
        if not lines[first].startswith(("class ", "def ", "async ", "@"), start):
            continue  # behind a semicolon
        if rest and not rest.startswith("#"):
            continue  # in front of one
        text.append(_between(lines, (line, column), (first, start)))
        head = f"class {node.name}" if isinstance(node, ast.ClassDef) else f"def {node.name}()"
        text.append(f'{head}: "{MARK}{len(parts)}"')
        parts.append(_between(lines, (first, start), (last, end)))
        line, column = last, end
    text.append(_between(lines, (line, column), (len(lines) - 1, 0)))
    return Excerpt("".join(text), tuple(parts))


_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def _held_back(
    tree: ast.Module, scopes: Mapping[str, Collection[str] | None]
) -> Iterator[_Definition]:
    """The definitions to hold back, in the order of the file, none inside another."""
    for statement in tree.body:
        if not isinstance(statement, _Definition):
            continue
        if statement.name not in scopes:
            yield statement
        elif isinstance(statement, ast.ClassDef) and scopes[statement.name] is not None:
            read = scopes[statement.name] or ()
            for inner in statement.body:
                if isinstance(inner, ast.FunctionDef) and inner.name not in read:
                    yield inner


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """The text from one (line, column) to another."""
    if start[0] == end[0]:
        return lines[start[0]][start[1] : end[1]]
    return "".join(
        [lines[start[0]][start[1] :], *lines[start[0] + 1 : end[0]], lines[end[0]][: end[1]]]
    )
