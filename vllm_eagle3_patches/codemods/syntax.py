"""Small helpers over LibCST trees: find, compare, insert; none of them knows about vLLM."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from textwrap import dedent
from typing import cast

import libcst as cst

from vllm_eagle3_patches.errors import RefusedError

WIDTH = 88  # columns; vLLM's formatter limit from 0.11.1 on (80 before)


def code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


def plain(node: cst.CSTNode) -> str:
    """The node's code in one canonical layout, comments and white space gone."""
    return ast.unparse(ast.parse(dedent(code(node)).strip()))


def tree(node: cst.CSTNode) -> ast.stmt:
    """The node as a statement of the standard library's `ast`."""
    return ast.parse(dedent(code(node)).strip()).body[0]


def matches(node: cst.CSTNode, text: str) -> bool:
    """Whether the node is the statement `text`, whatever its layout."""
    return isinstance(node, cst.BaseStatement) and plain(node) == ast.unparse(ast.parse(text))


def build(text: str, module: cst.Module) -> list[cst.BaseStatement]:
    """Statements from source text, in the line ends and indent of the module."""
    lines = dedent(text).strip("\n").split("\n")
    text = module.default_newline.join(lines) + module.default_newline
    built = cst.parse_module(text, config=module.config_for_parsing)
    return [cast(cst.BaseStatement, statement) for statement in built.body]


def body_of(node: cst.CSTNode) -> Sequence[cst.BaseStatement]:
    """The statements of an indented block."""
    block = getattr(node, "body", None)
    if not isinstance(block, cst.IndentedBlock):
        raise RefusedError("a block on one line, where an indented one was expected")
    return block.body


def with_body(node: cst.CSTNodeT, statements: Sequence[cst.BaseStatement]) -> cst.CSTNodeT:
    block = cast(cst.IndentedBlock, getattr(node, "body"))  # noqa: B009
    return node.with_changes(body=block.with_changes(body=statements))


def splice(
    old: Sequence[cst.BaseStatement], index: int, new: Sequence[cst.BaseStatement], drop: int = 0
) -> list[cst.BaseStatement]:
    """`old` with `new` before `index`, `drop` statements from there on left out."""
    return [*old[:index], *new, *old[index + drop :]]


def _named(statement: cst.CSTNode, kind: type[cst.CSTNode], name: str) -> bool:
    return isinstance(statement, kind) and cast(cst.Name, getattr(statement, "name")).value == name  # noqa: B009


def edit_class(
    module: cst.Module, name: str, change: Callable[[cst.ClassDef], cst.ClassDef]
) -> cst.Module:
    """The module with its one top-level class `name` changed; the module itself if it is not.

    Raises:
        RefusedError: there is no such class, or more than one.
    """
    return _edit(module, cst.ClassDef, "classes", name, change)


def edit_function(
    module: cst.Module, name: str, change: Callable[[cst.FunctionDef], cst.FunctionDef]
) -> cst.Module:
    """As `edit_class`, for a top-level function."""
    return _edit(module, cst.FunctionDef, "functions", name, change)


def _edit(
    module: cst.Module,
    kind: type[cst.CSTNodeT],
    plural: str,
    name: str,
    change: Callable[[cst.CSTNodeT], cst.CSTNodeT],
) -> cst.Module:
    found = [i for i, s in enumerate(module.body) if _named(s, kind, name)]
    if len(found) != 1:
        raise RefusedError(f"{len(found)} top-level {plural} {name}, where one was expected")
    old = cast(cst.CSTNodeT, module.body[found[0]])
    new = change(old)
    if new is old:
        return module
    body = [*module.body[: found[0]], cast(cst.BaseStatement, new), *module.body[found[0] + 1 :]]
    return module.with_changes(body=body)


def method_index(cls: cst.ClassDef, name: str) -> int | None:
    """Where the method stands in the class body, None if it does not.

    Raises:
        RefusedError: it stands there twice.
    """
    found = [i for i, s in enumerate(body_of(cls)) if _named(s, cst.FunctionDef, name)]
    if len(found) > 1:
        raise RefusedError(f"{len(found)} methods {name}, where one was expected")
    return found[0] if found else None


def edit_method(
    cls: cst.ClassDef, name: str, change: Callable[[cst.FunctionDef], cst.FunctionDef]
) -> cst.ClassDef:
    """The class with one method changed; the class itself if it is not.

    Raises:
        RefusedError: there is no such method.
    """
    index = method_index(cls, name)
    if index is None:
        raise RefusedError(f"no method {name}")
    old = cast(cst.FunctionDef, body_of(cls)[index])
    new = change(old)
    return cls if new is old else with_body(cls, splice(body_of(cls), index, [new], drop=1))


def insert_methods(cls: cst.ClassDef, before: str, text: str, module: cst.Module) -> cst.ClassDef:
    """The class with new methods in front of method `before`, or at its end where it has no
    such method; blank lines between."""
    index = method_index(cls, before)
    if index is None:
        index = len(body_of(cls))
    blank = cst.EmptyLine(indent=False)
    methods = [cast(cst.FunctionDef, m) for m in build(text, module)]
    spaced = [m.with_changes(leading_lines=[blank]) for m in methods]
    return with_body(cls, splice(body_of(cls), index, spaced))


def names_in(node: cst.CSTNode) -> set[str]:
    """Every bare name the node mentions."""
    return {n.id for n in ast.walk(tree(node)) if isinstance(n, ast.Name)}
