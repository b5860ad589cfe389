"""Makes a model class a `SupportsEagle3` that delegates to its inner model."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from vllm_eagle3_patches.codemods import imports
from vllm_eagle3_patches.codemods.syntax import (
    WIDTH,
    code,
    edit_class,
    insert_methods,
    method_index,
)
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.interface import METHODS, PROTOCOL

INTERFACES = (".interfaces", "vllm.model_executor.models.interfaces")
DELEGATION = """
def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
    self.{inner}.set_aux_hidden_state_layers(layers)

def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:
    return self.{inner}.get_eagle3_aux_hidden_state_layers()
"""


def _with_base(cls: cst.ClassDef, name: str, indent: str) -> cst.ClassDef:
    """The class with one more base, its header laid out as before where that fits."""
    bases: Sequence[cst.Arg] = cls.bases
    last = bases[-1]
    if "\n" not in code(last.with_changes(comma=cst.MaybeSentinel.DEFAULT)) + _comma(last):
        space = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
        joined = [
            *bases[:-1],
            last.with_changes(comma=space, whitespace_after_arg=cst.SimpleWhitespace("")),
            cst.Arg(cst.Name(name), whitespace_after_arg=last.whitespace_after_arg),
        ]
        wider = cls.with_changes(bases=joined)
        if max(map(len, _header(wider).splitlines())) <= WIDTH:
            return wider
    inner = cst.ParenthesizedWhitespace(indent=True, last_line=cst.SimpleWhitespace(indent))
    outer = cst.ParenthesizedWhitespace(indent=True)
    values = [*(arg.value for arg in bases), cst.Name(name)]
    return cls.with_changes(
        whitespace_after_class=cst.SimpleWhitespace(" "),
        lpar=cst.LeftParen(whitespace_after=inner),
        rpar=cst.RightParen(),
        bases=[
            cst.Arg(v, comma=cst.Comma(whitespace_after=inner if v is not values[-1] else outer))
            for v in values
        ],
    )


def _header(cls: cst.ClassDef) -> str:
    """The text from `class` to the colon."""
    bare = cls.with_changes(
        leading_lines=[],
        decorators=[],
        lines_after_decorators=[],
        body=cst.SimpleStatementSuite([cst.Pass()]),
    )
    return code(bare).removesuffix(" pass\n")


def _comma(arg: cst.Arg) -> str:
    return code(arg.comma) if isinstance(arg.comma, cst.Comma) else ""


def transform(module: cst.Module, cls: str, inner: str) -> cst.Module:
    """Raises RefusedError where the class has part of the interface, or an unusual header."""

    def change(node: cst.ClassDef) -> cst.ClassDef:
        named = PROTOCOL in [code(base.value) for base in node.bases]
        methods = [method_index(node, method) is not None for method in METHODS]
        if named and all(methods):
            return node
        if named or any(methods):
            raise RefusedError(f"{cls} has a part of {PROTOCOL} already")
        odd = node.keywords or any(base.star for base in node.bases) or "#" in _header(node)
        if not node.bases or odd:
            what = "no bases, or keywords, stars or comments among them"
            raise RefusedError(f"the header of class {cls} has {what}")
        with_base = _with_base(node, PROTOCOL, module.default_indent)
        return insert_methods(with_base, "forward", DELEGATION.format(inner=inner), module)

    changed = edit_class(module, cls, change)
    return module if changed is module else imports.add_beside(changed, PROTOCOL, INTERFACES)
