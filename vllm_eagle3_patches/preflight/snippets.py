"""Single functions out of vLLM's large files, without parsing the whole file.

`vllm/v1/worker/gpu_model_runner.py` has more than 5000 lines; one method of it is wanted.
"""

from __future__ import annotations

import ast
import re
import textwrap

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.sources import Sources, decode


def text(sources: Sources, path: str) -> str:
    """The file's text, empty where this vLLM has no such file."""
    return decode(sources.data(path), path) if sources.exists(path) else ""


def function_text(sources: Sources, path: str, name: str) -> str | None:
    """The source of the first function or method of this name, from its `def` on, dedented."""
    source = text(sources, path)
    start = re.search(rf"^([ \t]*)def {re.escape(name)}\(", source, re.MULTILINE)
    if start is None:
        return None
    indent = len(start.group(1))
    lines = source[start.start() :].splitlines(keepends=True)
    end = next(
        (
            number
            for number, line in enumerate(lines)
            # The closing parenthesis of the signature may stand as far left as the `def`.
            if number and line.strip() and _indent(line) <= indent and line.lstrip()[0] != ")"
        ),
        len(lines),
    )
    return textwrap.dedent("".join(lines[:end]))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def function(sources: Sources, path: str, name: str) -> ast.FunctionDef | None:
    """The first function or method of this name, parsed on its own; None where there is none."""
    source = function_text(sources, path, name)
    if source is None:
        return None
    try:
        statement = ast.parse(source).body[0]
    except SyntaxError:  # e.g. a string literal with lines further left than the function
        try:
            found = [n for n in ast.walk(sources.tree(path)) if getattr(n, "name", "") == name]
        except RefusedError:
            return None
        return next((n for n in found if isinstance(n, ast.FunctionDef)), None)
    return statement if isinstance(statement, ast.FunctionDef) else None


def strings(node: ast.AST) -> set[str]:
    """Every string constant in a tree."""
    return {
        n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    }
