"""Adds a base to a class header, laid out as before where that fits."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from vllm_eagle3_patches.codemods.syntax import WIDTH, code
from vllm_eagle3_patches.errors import RefusedError

INTERFACES = (".interfaces", "vllm.model_executor.models.interfaces")


def with_base(cls: cst.ClassDef, name: str, indent: str) -> cst.ClassDef:
    """The class with one more base, its header laid out as before where that fits.

    Raises:
        RefusedError: the header has keywords, stars or comments, or no bases.
    """
    if name in [code(base.value) for base in cls.bases]:
        return cls
    odd = cls.keywords or any(base.star for base in cls.bases) or "#" in header(cls)
    if not cls.bases or odd:
        what = "no bases, or keywords, stars or comments among them"
        raise RefusedError(f"the header of class {cls.name.value} has {what}")
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
        if max(map(len, header(wider).splitlines())) <= WIDTH:
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


def header(cls: cst.ClassDef) -> str:
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
