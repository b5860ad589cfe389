from __future__ import annotations

import compileall
import os
import py_compile
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from vllm_eagle3_patches import bytecode
from vllm_eagle3_patches.errors import WriteError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "vllm" / "model.py"
    (path.parent / "__pycache__").mkdir(parents=True)
    path.write_text("print('old')\n")
    return path


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_nothing_compiled_nothing_done(source: Path) -> None:
    bytecode.remove(source)
    (source.parent / "__pycache__").rmdir()
    bytecode.remove(source)
    bytecode.remove(source.parent / "gone" / "x.py")
    assert names(source.parent) == ["model.py"]


@pytest.mark.parametrize(
    "name",
    [
        "model.cpython-311.pyc",
        "model.cpython-313t.pyc",
        "model.cpython-310.opt-1.pyc",
        "model.cpython-39.opt-2.pyc",
        "model.pypy310.pyc",
        "model.pypy310.opt-1.pyc",
        "model.graalpy230-310.pyc",
        "model.cpython-311-pytest-8.3.4.pyc",
        "model.cpython-314-pytest-9.0.0.dev12+g1a2b3c.pyc",
        "model.cpython-311-pytest-8.pyc",
    ],
)
def test_every_tag(source: Path, name: str) -> None:
    (source.parent / "__pycache__" / name).touch()
    bytecode.remove(source)
    assert names(source.parent) == ["model.py"]


def test_beside_the_source(source: Path) -> None:
    source.with_suffix(".pyc").touch()
    bytecode.remove(source)
    assert names(source.parent) == ["model.py"]


@pytest.mark.parametrize(
    "name",
    [
        "model_other.cpython-311.pyc",
        "model.extra.cpython-311.pyc",
        "model.extra.cpython-311.opt-1.pyc",
        "model.extra.cpython-311-pytest-8.3.4.pyc",
        "mymodel.cpython-311.pyc",
        "Model.cpython-311.pyc",
        "model..cpython-311.pyc",
        "model.pyc",
        "model.cpython-311.pyc.1234",
        "model.cpython-311.pyc\n",
        "model.func-3.py311.nbi",
        "model.cpython-311.py",
        "__init__.cpython-311.pyc",
    ],
)
def test_other_modules_stay(source: Path, name: str) -> None:
    (source.parent / "__pycache__" / name).touch()
    (source.parent / "model.extra.pyc").touch()
    (source.parent / "model_other.pyc").touch()
    before = names(source.parent)
    bytecode.remove(source)
    assert names(source.parent) == before


def test_a_name_that_is_a_pattern(source: Path) -> None:
    odd = source.with_name("m.d[e]l+.py")
    (source.parent / "__pycache__" / "m.d[e]l+.cpython-311.pyc").touch()
    (source.parent / "__pycache__" / "mxdel.cpython-311.pyc").touch()
    bytecode.remove(odd)
    assert names(source.parent) == ["__pycache__/mxdel.cpython-311.pyc", "model.py"]


def test_not_a_module(source: Path) -> None:
    (source.parent / "__pycache__" / "model.cpython-311.pyc").touch()
    bytecode.remove(source.with_suffix(".json"))
    assert len(names(source.parent)) == 2


def test_folders_of_such_a_name_stay_and_links_go(source: Path, tmp_path: Path) -> None:
    cache = source.parent / "__pycache__"
    (cache / "model.cpython-311.pyc").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (cache / "model.cpython-312.pyc").symlink_to(tmp_path / "elsewhere")
    (cache / "model.cpython-313.pyc").symlink_to("nowhere")
    bytecode.remove(source)
    assert [path.name for path in cache.iterdir()] == ["model.cpython-311.pyc"]
    assert (tmp_path / "elsewhere").is_dir()


@pytest.mark.parametrize("variable", [True, False])
def test_below_the_prefix(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: bool
) -> None:
    prefix = tmp_path / "prefix"
    if variable:
        monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(prefix))
    else:
        monkeypatch.setattr(sys, "pycache_prefix", str(prefix))
    link = tmp_path / "lib64"
    link.symlink_to(source.parent, target_is_directory=True)
    env = {**os.environ, "PYTHONPYCACHEPREFIX": str(prefix)}
    for path in (source, source.parent / "__pycache__" / ".." / "model.py", link / "model.py"):
        command = [sys.executable, "-m", "py_compile", str(path)]
        subprocess.run(command, check=True, env=env)
    subprocess.run([sys.executable, "-OO", *command[1:]], check=True, env=env)
    stray = prefix / "model.cpython-311.pyc"
    stray.touch()
    assert len(names(prefix)) >= 4
    bytecode.remove(link / "model.py")
    assert [path for path in names(prefix) if "__pycache__" not in path] == [stray.name]


def test_what_cannot_be_deleted_is_an_error(source: Path) -> None:
    pyc = source.parent / "__pycache__" / "model.cpython-311.pyc"
    pyc.touch()
    denied = PermissionError(13, "Permission denied", str(pyc))
    with (
        mock.patch.object(os, "unlink", side_effect=denied),
        pytest.raises(WriteError, match=r"run in place of its source.*\(EACCES\)") as caught,
    ):
        bytecode.remove(source)
    assert caught.value.exit == 6


def test_what_cannot_be_listed_is_an_error(source: Path) -> None:
    with (
        mock.patch.object(Path, "iterdir", side_effect=PermissionError(13, "Permission denied")),
        pytest.raises(WriteError, match="cannot be listed") as caught,
    ):
        bytecode.remove(source)
    assert caught.value.where == str(source.parent / "__pycache__")


def run(source: Path, *options: str, **environment: str) -> str:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | environment
    command = [sys.executable, *options, "-c", "import model"]
    done = subprocess.run(
        command, cwd=source.parent, env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_old_bytecode_does_not_run(source: Path) -> None:
    """Python itself tells: before, it runs the old code, and after, the new one."""
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for level in (0, 1, 2):
        compileall.compile_dir(source.parent, quiet=1, optimize=level, invalidation_mode=mode)
    source.write_text("print('new')\n")
    for options in ((), ("-O",), ("-OO",)):
        assert run(source, *options) == "old"
    bytecode.remove(source)
    for options in ((), ("-O",), ("-OO",)):
        assert run(source, *options) == "new"


def test_old_bytecode_with_the_same_size_and_time_does_not_run(
    source: Path, tmp_path: Path
) -> None:
    prefix = {"PYTHONPYCACHEPREFIX": str(tmp_path / "prefix")}
    for environment in ({}, prefix):
        assert run(source, **environment) == "old"
    when = source.stat()
    source.write_text("print('new')\n")
    os.utime(source, ns=(when.st_atime_ns, when.st_mtime_ns))
    for environment in ({}, prefix):
        assert run(source, **environment) == "old"
    with mock.patch.dict(os.environ, prefix):
        bytecode.remove(source)
    for environment in ({}, prefix):
        assert run(source, **environment) == "new"
