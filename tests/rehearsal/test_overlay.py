"""The throw-away copy: other bytes where they are wanted, the installation's everywhere else."""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command import TOUCHED, lay, unchanged

from vllm_eagle3_patches import installation, operations, target
from vllm_eagle3_patches.errors import WriteError
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.rehearsal import overlay


@pytest.fixture
def at(tmp_path: Path) -> Installation:
    return installation.find(site_packages=str(lay(tmp_path / "site")))


def made(at: Installation, folder: Path) -> tuple[Path, dict[str, bytes]]:
    contents = operations.contents(at, target.request(None))
    return overlay.make(at, contents, folder), contents


def test_contents_are_what_apply_would_write(at: Installation) -> None:
    contents = operations.contents(at, target.request(None))
    operations.apply(at, target.request(None))
    assert contents == {path: at.path(path).read_bytes() for path in contents}
    assert sorted(contents) == sorted(TOUCHED)


def test_it_has_every_file_and_the_new_bytes(at: Installation, tmp_path: Path) -> None:
    folder, contents = made(at, tmp_path / "overlay")
    for path in at.package.rglob("*"):
        inside = str(path.relative_to(at.root))
        if path.is_file():
            expected = contents.get(inside, path.read_bytes())
            assert (folder / inside).read_bytes() == expected, inside


def test_the_installation_is_not_touched(at: Installation, tmp_path: Path) -> None:
    with unchanged(at.root):
        folder, contents = made(at, tmp_path / "overlay")
        for path in contents:
            (folder / path).write_bytes(b"raise SystemExit('not yours')")


def test_the_interpreter_takes_the_copy(at: Installation, tmp_path: Path) -> None:
    """Stale bytecode of a changed module is not used, that of the others is."""
    init = at.path("vllm/__init__.py")
    init.write_bytes(b"WHO = 'installed'\n")
    compileall.compile_file(str(init), quiet=1)
    folder = overlay.make(at, {"vllm/__init__.py": b"WHO = 'rehearsed'\n"}, tmp_path / "overlay")
    env = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{at.root}"}
    ask = [sys.executable, "-c", "import vllm; print(vllm.WHO)"]
    assert subprocess.check_output(ask, env=env, text=True) == "rehearsed\n"
    env["PYTHONPATH"] = str(at.root)
    assert subprocess.check_output(ask, env=env, text=True) == "installed\n"


def test_no_room_is_an_error_of_writing(at: Installation, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match="no overlay"):
        overlay.make(at, {}, tmp_path / "file")
