from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from command import lay

from vllm_eagle3_patches import interpreter
from vllm_eagle3_patches.errors import InstallationError, UsageError
from vllm_eagle3_patches.installation import Installation, find
from vllm_eagle3_patches.interpreter import executable, of, same, sys_path


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_executable_is_absolute_and_not_resolved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    monkeypatch.chdir(tmp_path)
    assert executable("./python") == tmp_path / "python"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert executable("python") == tmp_path / "python"


@pytest.mark.parametrize("name", ["", ".", "plain", "./plain", "absent", "/absent"])
def test_executable_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (tmp_path / "plain").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError):
        executable(name)


def test_same(tmp_path: Path) -> None:
    base = Path(sys.executable)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "python").symlink_to(base)
        (tmp_path / folder / "python3").symlink_to("python")
    (tmp_path / "link").symlink_to("one")
    one = tmp_path / "one/python"
    assert same(one, tmp_path / "one/python3")
    assert same(one, tmp_path / "link/python")
    assert not same(one, tmp_path / "two/python"), "another environment of the same base"
    assert not same(one, base)
    (tmp_path / "one/pypy").write_bytes(b"")
    assert not same(one, tmp_path / "one/pypy")


def test_sys_path_of_this_interpreter() -> None:
    folders = sys_path(Path(sys.executable))
    assert os.path.dirname(os.__file__) in folders  # noqa: PTH120
    assert "" not in folders


def test_sys_path_has_odd_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = os.fsdecode(bytes(tmp_path) + b"/\xff\xc3\xa9\n\xe2\x80\xa8")
    monkeypatch.setenv("PYTHONPATH", odd)
    assert odd in sys_path(Path(sys.executable))


def test_the_interpreter_has_no_input_and_a_neutral_folder(tmp_path: Path) -> None:
    exe = script(
        tmp_path / "python",
        f'#!/bin/sh\ncd {tmp_path} && echo "$OLDPWD $PYTHONSAFEPATH" > seen && cat >> seen\n'
        f'exec {sys.executable} "$@"\n',
    )
    reader, writer = os.pipe()
    os.write(writer, b"typed ahead")
    os.close(writer)
    stdin = os.dup(0)
    os.dup2(reader, 0)
    try:
        assert sys_path(exe)
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)
        os.close(reader)
    assert (tmp_path / "seen").read_text() == "/ 1\n"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("#!/bin/sh\necho no such thing >&2\nexit 3\n", r"\(exit 3: no such thing\)"),
        ("#!/bin/sh\nexit 0\n", r"\(exit 0: no word of its sys.path\)"),
        ('#!/bin/sh\n"$REAL" "$@"\nexit 4\n', r"\(exit 4: "),
        ("#!/no/such/interpreter\n", "does not run: No such file"),
        ("not a program", "does not run: Exec format error"),
    ],
)
def test_sys_path_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, what: str
) -> None:
    monkeypatch.setenv("REAL", sys.executable)
    exe = script(tmp_path / "python", text)
    with pytest.raises(InstallationError, match=what) as caught:
        sys_path(exe)
    assert caught.value.where == str(exe)


def test_sys_path_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter, "_SECONDS", 0.5)
    exe = script(tmp_path / "python", "#!/bin/sh\nsleep 30\necho late\n")
    start = time.monotonic()
    with pytest.raises(InstallationError, match=r"did not answer within 0\.5 s"):
        sys_path(exe)
    assert time.monotonic() - start < 10


@pytest.fixture
def installed(tmp_path: Path) -> Callable[[str], Installation]:
    def at(folder: str) -> Installation:
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / "python3").symlink_to(sys.executable)
        return find(site_packages=str(lay(tmp_path / folder)))

    return at


def test_an_installation_is_run_by_its_own_environment(
    installed: Callable[[str], Installation], tmp_path: Path
) -> None:
    assert of(installed("lib/python3.12")) == tmp_path / "bin" / "python3"


def test_a_program_that_happens_to_lie_above_is_not_its_own(
    installed: Callable[[str], Installation], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`/opt/site-packages` has nothing to do with `/bin/python`, though PYTHONPATH leads there."""
    found = installed("opt/vllm")
    monkeypatch.setenv("PYTHONPATH", str(found.root))
    assert of(found) == Path(sys.executable)
