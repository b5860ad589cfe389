"""Lets the drafter loader share the weights of a wrapper that holds a bare decoder."""

from __future__ import annotations

import ast
from typing import cast

import libcst as cst

from vllm_eagle3_patches.codemods import imports
from vllm_eagle3_patches.codemods.syntax import build, edit_class, edit_method, matches, tree
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.weight_sharing import LANGUAGE_MODEL, follows, handles_bare

READS = frozenset({"load_model"})
BRANCH = """
if not hasattr(target_language_model, "model"):
    # A bare decoder: the wrapper around it holds the lm_head.
    target_language_model = SimpleNamespace(
        model=target_language_model, lm_head=target_model.lm_head
    )
"""


class _InsertAfter(cst.CSTTransformer):
    def __init__(self, statement: tuple[str, ...], new: list[cst.BaseStatement]) -> None:
        self.statement, self.new = statement, new
        self.changed = 0

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.FlattenSentinel[cst.BaseStatement]:
        if not any(matches(original_node, s) for s in self.statement):
            return updated_node
        self.changed += 1
        return cst.FlattenSentinel([updated_node, *self.new])


def transform(module: cst.Module, cls: str) -> cst.Module:
    """Raises RefusedError where the loader does not take `target_model.get_language_model()`."""

    def change(method: cst.FunctionDef) -> cst.FunctionDef:
        found = follows(cast(ast.FunctionDef, tree(method)))
        if found is None:
            raise RefusedError(f"no statement `{LANGUAGE_MODEL[0]}`")
        if handles_bare(found[1]):
            return method
        insert = _InsertAfter(LANGUAGE_MODEL, build(BRANCH, module))
        new = method.visit(insert)
        if insert.changed != 1:
            raise RefusedError(f"`{LANGUAGE_MODEL[0]}` stands {insert.changed} times, not once")
        return cast(cst.FunctionDef, new)

    changed = edit_class(module, cls, lambda node: edit_method(node, "load_model", change))
    return module if changed is module else imports.add_stdlib(changed, "types", "SimpleNamespace")
