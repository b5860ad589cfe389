import ast

import libcst as cst
import pytest
from real import BARE_DECODER, CLOSED, DEEPSEEK_FILE, KIMI_FILE, LOADER, WITH_KIMI, cut, text

from codemods.behaviour import refused
from vllm_eagle3_patches.codemods import imports
from vllm_eagle3_patches.codemods.headers import INTERFACES

BASE = "SupportsEagle3"


def beside(source: str, name: str = BASE) -> str:
    return imports.add_beside(cst.parse_module(source), name, INTERFACES).code


def stdlib(source: str, module: str = "types", name: str = "SimpleNamespace") -> str:
    return imports.add_stdlib(cst.parse_module(source), module, name).code


def imported(source: str) -> set[str]:
    return {
        alias.asname or alias.name
        for node in ast.parse(source).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }


REAL = [(version, DEEPSEEK_FILE) for version in CLOSED]
REAL += [(version, KIMI_FILE) for version in WITH_KIMI]


def head(version: str, path: str) -> str:
    """The file without its classes and functions."""
    return cut(text(version, path))


def test_add_beside_noop_where_the_name_is_there() -> None:
    for source in (
        "from .interfaces import SupportsEagle3\n",
        "from elsewhere import SupportsEagle3\nfrom .interfaces import SupportsPP\n",
        "from .interfaces import A, SupportsEagle3  # why\n",
    ):
        assert beside(source) == source


@pytest.mark.parametrize(("version", "path"), REAL)
def test_add_beside(version: str, path: str) -> None:
    source = head(version, path)
    after = beside(source)
    assert imported(after) == imported(source) | {BASE}
    assert beside(after) == after
    crlf = source.replace("\n", "\r\n")
    assert beside(crlf) == after.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("from .interfaces import SupportsPP",
         "from .interfaces import SupportsEagle3, SupportsPP"),
        ("from .interfaces import A, B, C  # noqa",
         "from .interfaces import A, B, C, SupportsEagle3  # noqa"),
        ("from .interfaces import MixtureOfExperts, SupportsEagle, SupportsLoRA, SupportsPP",
         "from .interfaces import (\n    MixtureOfExperts,\n    SupportsEagle,\n"
         "    SupportsEagle3,\n    SupportsLoRA,\n    SupportsPP,\n)"),
        ("from .interfaces import (SupportsLoRA, SupportsPP)",
         "from .interfaces import (\n    SupportsEagle3,\n    SupportsLoRA,\n    SupportsPP,\n)"),
    ],
)  # fmt: skip
def test_add_beside_lays_out_as_the_line_was(line: str, expected: str) -> None:
    assert beside(f"import a\n\n{line}\n\nx = 1\n") == f"import a\n\n{expected}\n\nx = 1\n"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import os\n", "imports nothing of vLLM"),
        ("from .interfaces import *\n", "imports nothing of vLLM"),
        ("from .interfaces import A; x = 1\n", "imports nothing of vLLM"),
        ("if True:\n    from .interfaces import A\n", "imports nothing of vLLM"),
        ("from .interfaces import A\nfrom .interfaces import B\n", "2 imports"),
        ("from .interfaces import A as B\n", "`as` names"),
        ("from .interfaces import (\n    A,  # why\n)\n", "comments"),
    ],
)
def test_add_beside_refuses(source: str, reason: str) -> None:
    with refused(reason):
        beside(source)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import a\n\nfrom .deep import A\nfrom .utils import B\n",
         "import a\n\nfrom .deep import A\nfrom .interfaces import SupportsEagle3\n"
         "from .utils import B\n"),
        ("import a\n\nfrom .utils import B\n",
         "import a\n\nfrom .interfaces import SupportsEagle3\nfrom .utils import B\n"),
        ("import a\n\nfrom .deep import A\n\nx = 1\n",
         "import a\n\nfrom .deep import A\nfrom .interfaces import SupportsEagle3\n\nx = 1\n"),
        ("from vllm.config import A\nfrom vllm.utils import B\n",
         "from vllm.config import A\nfrom vllm.model_executor.models.interfaces import "
         "SupportsEagle3\nfrom vllm.utils import B\n"),
    ],
    ids=["between", "first", "last", "absolute"],
)  # fmt: skip
def test_add_beside_where_nothing_is_imported_from_there_yet(source: str, expected: str) -> None:
    assert beside(source) == expected
    assert beside(expected) == expected


@pytest.mark.parametrize(
    "source",
    [
        "from .interfaces import SupportsEagle3 as E3\nfrom .interfaces import SupportsPP\n",
        "from .old import SupportsEagle3 as E3\nfrom .interfaces import SupportsPP\n",
    ],
)
def test_a_name_imported_as_another_is_not_bound(source: str) -> None:
    try:
        after = beside(source)
    except imports.RefusedError:
        return
    assert BASE in imported(after)


@pytest.mark.parametrize("version", BARE_DECODER)
def test_add_stdlib_at_its_sorted_place(version: str) -> None:
    source = head(version, LOADER)
    after = stdlib(source)
    assert imported(after) == imported(source) | {"SimpleNamespace"}
    assert "find_spec\nfrom types import SimpleNamespace\n\nimport numpy" in after
    assert stdlib(after) == after
    assert stdlib(source.replace("\n", "\r\n")) == after.replace("\n", "\r\n")


def test_add_stdlib_noop_where_the_name_is_there() -> None:
    source = "from types import SimpleNamespace, TracebackType\n"
    assert stdlib(source) == source


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('"""Doc."""\nimport ast\n', '"""Doc."""\nimport ast\nfrom types import SimpleNamespace\n'),
        ("import ast\nfrom typing import Any\n",
         "import ast\nfrom types import SimpleNamespace\nfrom typing import Any\n"),
        ("import ast\n\nimport numpy\n",
         "import ast\nfrom types import SimpleNamespace\n\nimport numpy\n"),
        ("from __future__ import annotations\n\nimport ast\n",
         "from __future__ import annotations\nfrom types import SimpleNamespace\n\nimport ast\n"),
    ],
)  # fmt: skip
def test_add_stdlib_places(source: str, expected: str) -> None:
    assert stdlib(source) == expected


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x = 1\n", "does not begin with its imports"),
        ("x = 1\ny = 2\nimport os\n", "does not begin with its imports"),
        ("from typing import Any\n", "no place"),
    ],
)
def test_add_stdlib_refuses(source: str, reason: str) -> None:
    with refused(reason):
        stdlib(source)


def test_bound_looks_at_the_top_level_only() -> None:
    module = cst.parse_module("if True:\n    from a import B\n\ndef f():\n    from a import C\n")
    assert not imports.bound(module, "B")
    assert not imports.bound(module, "C")
