"""A base more in a class header, on the headers of every real model."""

from __future__ import annotations

import ast
import re

import libcst as cst
import pytest
from wheels import tree

from codemods.behaviour import refused
from vllm_eagle3_patches.codemods import headers
from vllm_eagle3_patches.codemods.syntax import code
from vllm_eagle3_patches.errors import RefusedError

BASE = "EagleModelMixin"
MODELS = "vllm/model_executor/models"


def extended(source: str, name: str = BASE) -> str:
    module = cst.parse_module(source)
    [cls] = [s for s in module.body if isinstance(s, cst.ClassDef)]
    return code(headers.with_base(cls, name, "    "))


def body(header: str) -> str:
    return f"{header}\n    x = 1\n"


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("class A(nn.Module):", f"class A(nn.Module, {BASE}):"),
        ("class A(nn.Module,):", f"class A(nn.Module, {BASE}):"),
        ("class A( nn.Module ):", f"class A( nn.Module, {BASE} ):"),
        ("class A(nn.Module, B[C]):  # why", f"class A(nn.Module, B[C], {BASE}):  # why"),
        ("class A(\n    nn.Module,\n    B,\n):",
         f"class A(\n    nn.Module,\n    B,\n    {BASE},\n):"),
        (f"class A(nn.Module, {'B' * 60}):",
         f"class A(\n    nn.Module,\n    {'B' * 60},\n    {BASE},\n):"),
    ],
)  # fmt: skip
def test_the_layout_is_kept_where_it_fits(header: str, expected: str) -> None:
    assert extended(body(header)) == body(expected)
    assert extended(body(expected)) == body(expected)


@pytest.mark.parametrize(
    "header",
    [
        "class A:",
        "class A():",
        "class A(nn.Module, metaclass=M):",
        "class A(*BASES):",
        "class A(\n    nn.Module,  # why\n):",
        "class A(\n    # why\n    nn.Module,\n):",
    ],
)
def test_another_header_is_refused(header: str) -> None:
    with refused("the header of class A has no bases, or keywords, stars or comments"):
        extended(body(header))


def real_headers(version: str) -> list[str]:
    """The headers, from `class` to the colon, of all classes with bases among the models."""
    found = []
    for file in sorted((tree(version) / MODELS).glob("*.py")):
        source = file.read_text()
        found += re.findall(r"^class \w+\((?:[^()#]|\([^()#]*\))+\):$", source, re.MULTILINE)
    return found


@pytest.mark.parametrize("version", ["0.10.1", "0.17.1", "0.32.0"])
def test_every_real_header_is_extended_or_refused(version: str) -> None:
    """Cut to the header: the same bases, one more behind them, no line too long by our doing."""
    classes = real_headers(version)
    assert len(classes) > 1000
    kept = 0
    for header in classes:
        source = body(header)
        try:
            after = extended(source)
        except RefusedError:
            continue
        kept += 1
        [old], [new] = ast.parse(source).body, ast.parse(after).body
        assert isinstance(old, ast.ClassDef) and isinstance(new, ast.ClassDef)
        bases = [ast.unparse(base) for base in old.bases]
        added = [] if BASE in bases else [BASE]
        assert [ast.unparse(base) for base in new.bases] == [*bases, *added]
        assert old.name == new.name
        assert max(map(len, after.splitlines())) <= max(88, *map(len, source.splitlines()))
        assert extended(after) == after
    assert kept >= 0.95 * len(classes)
