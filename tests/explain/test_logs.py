"""The builder of logs against the code that makes vLLM's."""

from __future__ import annotations

import ast
import io
import logging
import sys
import types
from pathlib import Path

import pytest
from wheels import tree

from explain.logs import CYAN, RESET, Error, Frame, Process

FORMATS = {
    "0.10.1": "%(levelname)s %(asctime)s [%(filename)s:%(lineno)d] %(message)s",
    "0.17.1": "%(levelname)s %(asctime)s [%(fileinfo)s:%(lineno)d] %(message)s",
    "0.32.0": "%(levelname)s %(asctime)s [%(fileinfo)s:%(lineno)d] %(message)s",
}
FRAME = Frame("vllm/v1/worker/gpu_model_runner.py", "load_model", "raise RuntimeError(")


def module(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """One file of vLLM's, on its own: of the package it needs nothing but the settings."""
    package = types.ModuleType("vllm")
    package.envs = types.SimpleNamespace(VLLM_LOGGING_LEVEL="INFO")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm", package)
    loaded = types.ModuleType(name)
    loaded.__file__ = str(path)
    exec(compile(path.read_text(), str(path), "exec"), loaded.__dict__)
    return loaded


@pytest.mark.parametrize("version", FORMATS)
def test_a_logged_exception_is_laid_out_as_vllm_does(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tree(version) / "vllm/logging_utils/formatter.py"
    formatter = module(path, "formatter", monkeypatch).NewLineFormatter(
        FORMATS[version], datefmt="%m-%d %H:%M:%S"
    )
    record = logging.LogRecord(
        "vllm", logging.ERROR, "core.py", 718, "EngineCore failed to start.", None, None
    )
    error = Error("RuntimeError", "Model does not support EAGLE3 interface", [FRAME])
    record.exc_text = "\n".join(error.traceback())
    made = formatter.format(record)
    time = made.split()[1:3]
    built = Process("").logged(
        ["EngineCore failed to start.", *error.traceback()], "core.py:718", time=" ".join(time)
    )
    assert made.split("\r\n") == built


@pytest.mark.parametrize(
    ("version", "file"),
    [("0.10.1", "vllm/utils/__init__.py"), ("0.17.1", "vllm/utils/system_utils.py")],
)
def test_every_line_of_a_process_has_its_prefix(version: str, file: str) -> None:
    source = (tree(version) / file).read_text()
    [function] = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef) and node.name == "_add_prefix"
    ]
    function.args.args[0].annotation = None
    envs = types.SimpleNamespace(NO_COLOR=False, VLLM_LOGGING_COLOR="1")
    scope: dict[str, object] = {"CYAN": CYAN, "RESET": RESET, "envs": envs}
    exec(compile(ast.Module([function], []), file, "exec"), scope)

    class Stream(io.StringIO):
        start_new_line = True

    stream = Stream()
    written: list[str] = []
    stream.write = written.append  # type: ignore[assignment]
    scope["_add_prefix"](stream, "Worker_TP0", 530)  # type: ignore[operator]
    stream.write("Traceback (most recent call last):\nValueError: x\n")
    process = Process(f"{CYAN}(Worker_TP0 pid=530){RESET} ")
    assert "".join(written).splitlines() == process.raw(
        ["Traceback (most recent call last):", "ValueError: x"]
    )
