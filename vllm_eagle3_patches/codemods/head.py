"""Makes a head reachable as `lm_head`, for the drafter loader to share.

Neither a submodule, which would have state-dict keys of its own, nor a property, which a subclass
would inherit without being able to delete or replace it: vLLM's pooling adapters (to 0.12.0) and
its loader of drafters do both, and `EagleCohereForCausalLM` is a subclass of a target.
"""

from __future__ import annotations

import libcst as cst

from vllm_eagle3_patches.codemods.syntax import (
    body_of,
    build,
    edit_class,
    edit_method,
    plain,
    with_body,
)

READS = frozenset({"__init__"})
TEXT = 'self.__dict__["lm_head"] = {head}  # an alias, not a submodule'


def transform(module: cst.Module, cls: str, head: str) -> cst.Module:
    """`head`: the expression on self; raises RefusedError where the class has no `__init__`."""

    def change(method: cst.FunctionDef) -> cst.FunctionDef:
        statements = body_of(method)
        new = build(TEXT.format(head=head), module)
        if any(plain(statement) == plain(new[0]) for statement in statements):
            return method
        return with_body(method, [*statements, *new])

    return edit_class(module, cls, lambda node: edit_method(node, "__init__", change))
