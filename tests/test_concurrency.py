"""Several real processes on one installation at once."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from fake_package import ONE, TWO, A, commit, fake_package, recover, tree

from vllm_eagle3_patches import integrity
from vllm_eagle3_patches.errors import IntegrityError, WriteError
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.interruption import TRIES, undisturbed
from vllm_eagle3_patches.transaction import Transaction, interrupted

HERE = Path(__file__).parent
PRELUDE = f"""
import os, sys
from dataclasses import replace
from pathlib import Path
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
from fake_package import *
from vllm_eagle3_patches.errors import *
site = Path(sys.argv[1])
at = Installation("vllm", "0.17.1", site, site, site / "vllm-0.17.1.dist-info", False, "a child")
def pause():
    print("here", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def at(tmp_path: Path) -> Installation:
    return fake_package(tmp_path / "env" / "site")


def start(at: Installation, code: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PRELUDE + code, str(at.root)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def paused(at: Installation, code: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has come to its `pause()`."""
    with start(at, code) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        try:
            yield process
        finally:
            process.kill()


HOLDER = "with Transaction(at): pause()"
HALFWAY = """
def hook(n, name, args, call):
    call()
    if args[1] == at.root / A: pause()
with hooked(hook, "replace"): commit(at, ONE)
"""


def test_the_lock_is_held_by_another(at: Installation) -> None:
    with paused(at, HOLDER):
        began = time.monotonic()
        with (
            pytest.raises(WriteError, match=r"another run .* holds") as caught,
            Transaction(at, timeout=0.3),
        ):
            pass
        assert 0.3 <= time.monotonic() - began < 5
        assert caught.value.exit == 6
        assert caught.value.where == str(at.dist_info)
        with pytest.raises(WriteError), Transaction(at, timeout=0):
            pass
    with Transaction(at, timeout=0):
        pass


def test_waits_for_the_lock(at: Installation) -> None:
    code = "import time\nwith Transaction(at): print('here', flush=True); time.sleep(0.5)"
    with start(at, code) as process:
        assert process.stdout is not None
        process.stdout.readline()
        began = time.monotonic()
        with Transaction(at):
            assert time.monotonic() - began > 0.2


def test_the_lock_leaves_no_litter_and_ends_with_its_holder(at: Installation) -> None:
    before = tree(at.root)
    with paused(at, HOLDER) as process:
        assert tree(at.root) == before
        process.send_signal(signal.SIGKILL)
        process.wait()
        with Transaction(at, timeout=0):
            assert tree(at.root) == before


def test_two_threads_or_one_process_twice(at: Installation) -> None:
    with Transaction(at), pytest.raises(WriteError), Transaction(at, timeout=0):
        pass


def test_a_child_does_not_inherit_the_lock(at: Installation) -> None:
    with Transaction(at):
        sleeper = subprocess.Popen(["sleep", "60"])
    try:
        with Transaction(at, timeout=0):
            pass
    finally:
        sleeper.kill()
        sleeper.wait()


def test_reinstalled_while_waiting(at: Installation, tmp_path: Path) -> None:
    """The lock is that of the folder which lies there when it is had."""
    with paused(at, HOLDER):
        at.dist_info.rename(tmp_path / "old")
        at.dist_info.mkdir()
        with Transaction(at, timeout=0), pytest.raises(WriteError), Transaction(at, timeout=0):
            pass


def test_reinstalled_while_locking(at: Installation, tmp_path: Path) -> None:
    """A lock had on a folder that has just been replaced is worth nothing."""
    real = fcntl.flock

    def flock(fd: int, operation: int) -> None:
        if not (tmp_path / "old").exists():
            at.dist_info.rename(tmp_path / "old")
            at.dist_info.mkdir()
        real(fd, operation)

    with (
        mock.patch.object(fcntl, "flock", flock),
        Transaction(at),
        pytest.raises(WriteError),
        Transaction(at, timeout=0),
    ):
        pass


def test_a_run_at_work_is_not_an_interrupted_one(at: Installation) -> None:
    before = tree(at.root)
    with paused(at, HALFWAY) as process:
        left = interrupted(at)
        assert left == "another run of vllm-eagle3-patch is at work here"
        assert isinstance(integrity.interruption(at, left), WriteError)  # exit 6: wait for it
        process.send_signal(signal.SIGKILL)
        process.wait()
        found = interrupted(at)
        assert found is not None
        assert "was interrupted while changing vllm/a.py" in found
    assert recover(at)
    assert tree(at.root) == before


def test_a_run_at_work_ends_well_for_those_who_wait(at: Installation) -> None:
    with paused(at, HALFWAY) as first, start(at, "print(recover(at), commit(at, ONE))") as second:
        time.sleep(0.3)
        assert second.poll() is None
        assert first.stdin is not None
        first.stdin.close()
        assert second.communicate()[0] == "[] []\n"
    assert (at.root / A).read_bytes() == ONE[A]


def test_many_at_once(at: Installation) -> None:
    """Each of them plans and commits in turn; the last word is whole."""
    pristine = tree(at.root)
    wanted = [ONE, TWO, {}]
    expected = []
    for new in wanted:
        commit(at, new)
        expected.append(tree(at.root))
    assert expected[2] == pristine
    code = """
for n in range(12):
    with Transaction(at, timeout=60) as t:
        assert t.recover() == []
        contents, receipt, expected = plan(at, [ONE, TWO, {}][(n + START) % 3])
        t.commit(contents, receipt, expected=expected)
"""
    running = [start(at, code.replace("START", str(number))) for number in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    for process in running:
        process.communicate()
    assert tree(at.root) in expected
    assert interrupted(at) is None


def test_a_plan_made_before_another_run_is_refused(at: Installation) -> None:
    code = """
contents, receipt, expected = plan(at, ONE)
pause()
with Transaction(at) as t:
    try: t.commit(contents, receipt, expected=expected)
    except IntegrityError as error: print(error.what)
"""
    with paused(at, code) as process:
        commit(at, TWO)
        after = tree(at.root)
        out = process.communicate()[0]
    assert "was changed by someone else during this run; nothing was changed" in out
    assert tree(at.root) == after


def test_killed_again_and_again(at: Installation) -> None:
    """Processes killed at moments of their own, each followed by one that recovers."""
    pristine = tree(at.root)
    code = """
print("here", flush=True)
while True:
    recover(at); commit(at, ONE); recover(at); commit(at, {})
"""
    commit(at, ONE)
    one = tree(at.root)
    for number in range(25):
        with paused(at, code):
            time.sleep(0.003 * number)
        found = interrupted(at)
        if found is None:
            assert tree(at.root) in (pristine, one)
        recover(at)
        assert tree(at.root) in (pristine, one)


@pytest.mark.parametrize("fails", [False, True])
def test_what_a_run_changed_while_it_was_read_is_read_again(at: Installation, fails: bool) -> None:
    found = []

    @undisturbed
    def read(installation: Installation, name: str) -> bytes:
        found.append((installation.root / name).read_bytes())
        if len(found) == 1:
            commit(at, ONE)
            if fails:
                raise IntegrityError("changed by someone else")
        return found[-1]

    assert read(at, A) == found[1] != found[0]
    assert read(at, A) == found[2]
    assert len(found) == 3


def test_what_is_changed_again_and_again_is_given_up(at: Installation) -> None:
    tries = []

    @undisturbed
    def read(installation: Installation) -> None:
        tries.append(commit(at, TWO if len(tries) % 2 else ONE))

    with pytest.raises(WriteError, match=r"another run of .* is at work"):
        read(at)
    assert len(tries) == TRIES


def test_an_error_of_files_that_nobody_changes_is_raised(at: Installation) -> None:
    @undisturbed
    def read(installation: Installation) -> None:
        raise IntegrityError("changed by someone else")

    with pytest.raises(IntegrityError):
        read(at)
