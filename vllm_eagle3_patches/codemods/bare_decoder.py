"""Lets the V2 runner's drafter loader take a bare decoder as the target's language model."""

from __future__ import annotations

from typing import cast

import libcst as cst

from vllm_eagle3_patches.codemods.syntax import body_of, build, edit_function, matches, splice
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.weight_sharing import EITHER, INNER


def transform(module: cst.Module, function: str) -> cst.Module:
    """Raises RefusedError where the function does not take `.model` of the language model."""

    def change(node: cst.FunctionDef) -> cst.FunctionDef:
        statements = body_of(node)
        if any(matches(s, EITHER) for s in statements):
            return node
        found = [i for i, s in enumerate(statements) if matches(s, INNER)]
        if len(found) != 1:
            raise RefusedError(f"`{INNER}` stands {len(found)} times, not once")
        old = cast(cst.SimpleStatementLine, statements[found[0]])
        new = cast(cst.SimpleStatementLine, build(EITHER.replace("'", '"'), module)[0])
        new = new.with_changes(leading_lines=old.leading_lines)
        block = cast(cst.IndentedBlock, node.body)
        return node.with_changes(
            body=block.with_changes(body=splice(statements, found[0], [new], drop=1))
        )

    return edit_function(module, function, change)
