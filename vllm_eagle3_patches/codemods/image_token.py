"""Adds a branch to the drafter loader's image-token chain for one architecture."""

from __future__ import annotations

import ast
from typing import cast

import libcst as cst

from vllm_eagle3_patches.codemods.syntax import (
    WIDTH,
    build,
    edit_class,
    edit_method,
    plain,
    tree,
)
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.image_token import branch_for, branches, find_chain, reads

READS = frozenset({"load_model"})


class _AddBranch(cst.CSTTransformer):
    """Puts an `elif` in front of the chain's `else`; `chain` is compared as plain code, its first
    test before the rest: a loader has many an `if`."""

    def __init__(self, chain: ast.If, branch: cst.If) -> None:
        self.test, self.chain = ast.unparse(chain.test), ast.unparse(chain)
        self.branch = branch
        self.changed = 0

    def _is_chain(self, node: cst.If) -> bool:
        if plain(node.test) != self.test:
            return False
        return ast.unparse(tree(node.with_changes(leading_lines=[]))) == self.chain

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
        if not self._is_chain(original_node):
            return updated_node
        self.changed += 1
        return _with_branch(updated_node, self.branch)


def _with_branch(node: cst.If, branch: cst.If) -> cst.If:
    rest = node.orelse
    if isinstance(rest, cst.If):
        return node.with_changes(orelse=_with_branch(rest, branch))
    return node.with_changes(orelse=branch.with_changes(orelse=rest))


def _laid_out(value: str) -> str:
    """The value over three lines, as the formatter lays out a call or a long attribute."""
    pad = " " * 20
    if value.startswith("getattr("):
        inner = value.removeprefix("getattr(").removesuffix(")").replace("'", '"')
        return f"getattr(\n{pad}    {inner}\n{pad})"
    return f"(\n{pad}    {value}\n{pad})"


def transform(module: cst.Module, cls: str, architecture: str, value: str) -> cst.Module:
    """Raises RefusedError where the chain does not end in `else: ... image_token_index`."""

    def change(method: cst.FunctionDef) -> cst.FunctionDef:
        chain = find_chain(cast(ast.FunctionDef, tree(method)))
        if chain is None:
            raise RefusedError("no chain of branches that sets image_token_index")
        body = branch_for(chain, architecture)
        if body is not None:
            if reads(body, value):
                return method
            raise RefusedError(f"the branch for {architecture} does not read {value}")
        test, last = branches(chain)[-1]
        if test is not None or not reads(last, "target_model.config.image_token_index"):
            raise RefusedError("the chain does not end in `else: ... image_token_index`")
        test_text = f'self.get_model_name(target_model) == "{architecture}"'
        if len(f"            elif {test_text}:") > WIDTH:
            test_text = f"(\n{' ' * 20}{test_text}\n{' ' * 16})"
        branch = cast(
            cst.If,
            build(
                f"""
                if {test_text}:
                    self.model.config.image_token_index = {_laid_out(value)}
                """,
                module,
            )[0],
        )
        add = _AddBranch(chain, branch)
        new = method.visit(add)
        if add.changed != 1:
            raise RefusedError(f"{add.changed} such chains, where one was expected")
        return cast(cst.FunctionDef, new)

    return edit_class(module, cls, lambda node: edit_method(node, "load_model", change))
