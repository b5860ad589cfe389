"""Other texts of the same program, and damaged ones, made from a real source."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Collection
from functools import cache

FORMATS = ("as it is", "unparsed", "40", "60", "79", "120", "320")

Definition = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def formatted(source: str, how: str) -> str:
    """The source in another layout: by `ast.unparse`, or by ruff at a line length."""
    if how == "as it is":
        return source
    if how == "unparsed":
        return ast.unparse(ast.parse(source)) + "\n"
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length", how, "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


def trimmed(source: str, keep: Collection[str], longest: int = 12) -> str:
    """The source without its long methods but those named."""
    lines = source.splitlines(keepends=True)
    methods = [
        method
        for cls in ast.parse(source).body
        if isinstance(cls, ast.ClassDef)
        for method in cls.body
        if isinstance(method, ast.FunctionDef) and method.name not in keep
    ]
    for method in reversed(methods):
        first, last = _first_line(method), method.end_lineno or 0
        if last - first >= longest:
            del lines[first - 1 : last]
    return "".join(lines)


def swapped_neighbours(source: str, choice: int) -> str:
    """Two definitions that stand side by side in one body, and do not name each other, swapped."""
    bodies = [
        node.body
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Module, ast.ClassDef))
    ]
    pairs = [
        (body, i)
        for body in bodies
        for i in range(1, len(body))
        if isinstance(body[i - 1], Definition)
        and isinstance(body[i], Definition)
        and body[i - 1].name not in _names(body[i])
        and body[i].name not in _names(body[i - 1])
    ]
    if not pairs:
        return source
    body, i = pairs[choice % len(pairs)]
    start = (body[i - 2].end_lineno or 0) if i > 1 else _first_line(body[0]) - 1
    middle, end = body[i - 1].end_lineno, body[i].end_lineno
    lines = source.splitlines(keepends=True)
    return "".join([*lines[:start], *lines[middle:end], *lines[start:middle], *lines[end:]])


def _names(node: ast.stmt) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def interesting(source: str, pattern: str) -> list[int]:
    """The numbers, from 0, of the lines that match and of their neighbours."""
    lines = source.splitlines()
    return sorted(
        {
            near
            for i, line in enumerate(lines)
            if re.search(pattern, line)
            for near in range(max(0, i - 2), min(len(lines), i + 3))
        }
    )


def commented(source: str, number: int, kind: str) -> str:
    """The source with a comment or a blank line at line `number`, or as it is where none fits."""
    lines = source.splitlines(keepends=True)
    closed_before, closed_after = _joints(source)
    if kind == "behind":
        if number not in closed_after and lines[number].endswith("\n"):
            lines[number] = lines[number].rstrip("\n") + "  # note\n"
    elif number not in closed_before:
        line = lines[number]
        indent = line[: len(line) - len(line.lstrip())].rstrip("\n")
        lines.insert(
            number, {"above": f"{indent}# note\n", "left": "# note\n", "blank": "\n"}[kind]
        )
    return "".join(lines)


def _joints(source: str) -> tuple[set[int], set[int]]:
    """Lines that nothing may be put before, and that nothing may be put behind."""
    before: set[int] = set()
    after: set[int] = set()
    starts: list[int] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        first, last = token.start[0] - 1, token.end[0] - 1
        name = tokenize.tok_name[token.type]
        if name == "FSTRING_START":
            starts.append(first)
        elif name == "FSTRING_END":
            first, name = starts.pop(), "STRING"
        if name == "STRING":
            before.update(range(first + 1, last + 1))
            after.update(range(first, last))
    for i, line in enumerate(source.splitlines()):
        if line.endswith("\\"):
            before.add(i + 1)
            after.add(i)
    return before, after


def damaged(source: str, number: int, kind: str) -> str:
    """The source with one line lost, twice, or swapped with the next."""
    lines = source.splitlines(keepends=True)
    number %= len(lines)
    if kind == "lost":
        del lines[number]
    elif kind == "twice":
        lines.insert(number, lines[number])
    else:
        lines[number : number + 2] = reversed(lines[number : number + 2])
    return "".join(lines)
