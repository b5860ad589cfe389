from __future__ import annotations

import ast
from pathlib import Path

import pytest
from real import sources

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.sources import Sources


@pytest.mark.parametrize("version", ["0.15.0", "0.32.0"])
@pytest.mark.parametrize(
    "path",
    [
        "vllm/config/speculative.py",
        "vllm/model_executor/models/llama_eagle3.py",
        "vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py",
        "vllm/transformers_utils/configs/eagle.py",
    ],
)
def test_same_as_the_parsed_file(version: str, path: str) -> None:
    found = sources(version)
    if not found.exists(path):
        assert snippets.text(found, path) == ""
        return
    functions = [n for n in ast.walk(found.tree(path)) if isinstance(n, ast.FunctionDef)]
    for name in {function.name for function in functions}:
        first = min((n for n in functions if n.name == name), key=lambda n: n.lineno)
        assert _code(snippets.function(found, path, name)) == _code(first)


def _code(function: ast.FunctionDef | None) -> list[str]:
    """Signature and statements; the indentation of a docstring is no matter here."""
    assert function is not None
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return [ast.unparse(function.args), *map(ast.unparse, body)]


def test_string_with_lines_further_left(tmp_path: Path) -> None:
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "a.py").write_text(
        'class A:\n    def f(self):\n        return """\nleft\n"""\n\n    def g(self): ...\n'
    )
    function = snippets.function(Sources(tmp_path), "vllm/a.py", "f")
    assert (
        function is not None and ast.literal_eval(ast.unparse(function.body[0])[7:]) == "\nleft\n"
    )


def test_signature_over_many_lines(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f(\n    a,\n) -> int:\n    return 1\n\n\ndef g(): ...\n")
    function = snippets.function(Sources(tmp_path), "a.py", "f")
    assert function is not None and len(function.body) == 1


def test_absent(tmp_path: Path) -> None:
    assert snippets.function(Sources(tmp_path), "a.py", "f") is None
