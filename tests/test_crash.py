"""Kills a run with SIGKILL, or fails its system calls, at every step."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest
from fake_package import (
    ONE,
    TWO,
    commit,
    compile_all,
    fake_package,
    hooked,
    in_child,
    recover,
    stale,
    tree,
)

from vllm_eagle3_patches.errors import WriteError
from vllm_eagle3_patches.files import temporary
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.transaction import interrupted

Contents = dict[str, bytes]
RUNS = pytest.mark.parametrize(
    ("start", "end"), [({}, ONE), (ONE, TWO), (ONE, {})], ids=["apply", "change", "revert"]
)
really_write = os.write


@pytest.fixture(autouse=True)
def no_waiting_for_disks() -> Iterator[None]:
    """A process that is killed loses nothing for want of fsync; the calls are made all the same."""
    with mock.patch.object(os, "fsync", lambda fd: os.fstat(fd)):
        yield


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where there is such a place: these tests write thousands of files."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        yield Path(name)


class Bench:
    """Copies of one installation in the state `start`, and how it is before and after `end`."""

    def __init__(self, folder: Path, start: Contents, end: Contents) -> None:
        self.folder, self.end = folder, end
        self.model = fake_package(folder / "model" / "site")
        commit(self.model, start)
        compile_all(self.model.root)
        self.old = tree(self.model.root)
        done = self.fresh()
        commit(done, end)
        self.new = tree(done.root)
        assert self.old != self.new

    def fresh(self) -> Installation:
        folder = self.folder / "copy"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder / "model", folder, symlinks=True)
        site = folder / "site"
        info = site / self.model.dist_info.name
        return replace(self.model, site_packages=site, root=site, dist_info=info)


def killing(number: int, when: str) -> Callable[..., Any]:
    """A hook that ends the process before, after or amid the call of that number."""

    def hook(n: int, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        if n == number:
            if when == "after":
                with suppress(OSError):
                    call()
            if when == "amid" and name == "write":
                really_write(args[0], args[1][: len(args[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return call()

    return hook


def killed(action: Callable[[], object], number: int, when: str) -> bool:
    """Whether the call of that number was reached; where it was not, the action went well."""

    def child() -> None:
        with hooked(killing(number, when)):
            action()

    status = in_child(child)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert status == 0
    return False


@RUNS
@pytest.mark.parametrize("when", ["before", "amid", "after"])
def test_kill_at_every_call(folder: Path, start: Contents, end: Contents, when: str) -> None:
    bench = Bench(folder, start, end)
    outcomes = set()
    for number in range(1, 1000):
        at = bench.fresh()
        if not killed(lambda at=at: commit(at, end), number, when):  # type: ignore[misc]
            break
        compile_all(at.root)
        found = interrupted(at)
        if found is None:
            assert tree(at.root) in (bench.old, bench.new), number
            outcomes.add("old" if tree(at.root) == bench.old else "new")
            assert recover(at) == []
        else:
            outcomes.add("interrupted")
            assert recover(at), found
            assert tree(at.root) == bench.old, (number, found)
        assert interrupted(at) is None
        assert stale(at.root) == []
        commit(at, end)
        assert tree(at.root) == bench.new
        assert stale(at.root) == []
    assert number > 50
    assert outcomes == {"old", "interrupted", "new"}


@RUNS
def test_kill_the_recovery_at_every_call(folder: Path, start: Contents, end: Contents) -> None:
    bench = Bench(folder, start, end)
    recoveries = 0
    for first in range(1, 1000, 13):
        for number in range(1, 1000):
            at = bench.fresh()
            if not killed(lambda at=at: commit(at, end), first, "before"):  # type: ignore[misc]
                break
            if interrupted(at) is None:
                break
            compile_all(at.root)
            if not killed(lambda at=at: recover(at), number, "amid"):  # type: ignore[misc]
                assert tree(at.root) == bench.old
                break
            recoveries += 1
            found = interrupted(at)
            assert bool(recover(at)) == (found is not None)
            assert tree(at.root) == bench.old, (first, number, found)
            assert interrupted(at) is None
            assert stale(at.root) == []
    assert recoveries > 50


def failing(number: int, reason: int, *, for_good: bool) -> Callable[..., Any]:
    """A hook that fails the call of that number, and `for_good` all those after it."""

    def hook(n: int, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        if name == "close":  # a close that fails has closed all the same
            call()
        if n == number or (for_good and n > number):
            raise OSError(reason, os.strerror(reason))
        return None if name == "close" else call()

    return hook


@RUNS
def test_each_call_fails_once(folder: Path, start: Contents, end: Contents) -> None:
    bench = Bench(folder, start, end)
    reasons = cycle([errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.EIO])
    calls = 0

    def counted(n: int, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
        nonlocal calls
        calls = n
        return call()

    with hooked(counted):
        commit(bench.fresh(), end)
    failures = 0
    for number in range(3, calls):  # the first two take the lock, the last one gives it back
        at = bench.fresh()
        reason = next(reasons)
        try:
            with hooked(failing(number, reason, for_good=False)):
                commit(at, end)
        except WriteError as error:
            failures += 1
            assert "nothing was changed" in error.what, number
            assert os.strerror(reason) in error.what
            assert errno.errorcode[reason] in error.what
            assert str(folder) in str(error.where)
            assert tree(at.root) == bench.old, number
        else:
            assert tree(at.root) == bench.new, number
        assert interrupted(at) is None
        assert stale(at.root) == []
        commit(at, end)
        assert tree(at.root) == bench.new
    assert failures > 40


@RUNS
@pytest.mark.parametrize("calls", [("write",), ("fsync",), ("write", "fsync"), ("replace",), ()])
def test_calls_fail_from_one_on(
    folder: Path, start: Contents, end: Contents, calls: tuple[str, ...]
) -> None:
    bench = Bench(folder, start, end)
    said = set()
    for number in range(1, 1000):
        at = bench.fresh()
        try:
            with hooked(failing(number, errno.ENOSPC, for_good=True), *calls):
                commit(at, end)
        except (WriteError, OSError) as error:  # an OSError: the lock could not be given back
            what = str(error)
        else:
            assert tree(at.root) == bench.new
            break
        if "putting everything back failed too" in what:
            said.add("failed")
            assert "half changed" in what
            recover(at)
            assert tree(at.root) == bench.old, number
        elif "nothing was changed" in what:
            said.add("unchanged")
            assert tree(at.root) == bench.old, number
        else:
            assert tree(at.root) in (bench.old, bench.new)
        assert interrupted(at) is None
        commit(at, end)
        assert tree(at.root) == bench.new
    assert "unchanged" in said


@RUNS
def test_a_full_disk_of_any_size(folder: Path, start: Contents, end: Contents) -> None:
    """However little is free, a run that does not fit changes nothing, without help."""
    bench = Bench(folder, start, end)
    failures = 0
    for free in range(0, 1 << 20, 61):
        at = bench.fresh()
        capacity = used(at.root) + free

        def hook(
            n: int,
            name: str,
            args: tuple[Any, ...],
            call: Callable[[], Any],
            at: Installation = at,
            capacity: int = capacity,
        ) -> Any:
            room = capacity - used(at.root)
            if room >= len(args[1]):
                return call()
            if room > 0:
                return really_write(args[0], args[1][:room])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        try:
            with hooked(hook, "write"):
                commit(at, end)
        except WriteError as error:
            failures += 1
            assert "nothing was changed" in error.what
            assert "ENOSPC" in error.what
            assert tree(at.root) == bench.old
            assert interrupted(at) is None
        else:
            assert tree(at.root) == bench.new
            break
    assert failures > 10


def used(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


@RUNS
def test_keyboard_interrupt_at_every_call(folder: Path, start: Contents, end: Contents) -> None:
    bench = Bench(folder, start, end)
    for number in range(3, 1000):
        at = bench.fresh()

        def hook(
            n: int,
            name: str,
            args: tuple[Any, ...],
            call: Callable[[], Any],
            number: int = number,
        ) -> Any:
            if n == number:
                with suppress(OSError):
                    call()
                raise KeyboardInterrupt
            return call()

        try:
            with hooked(hook):
                commit(at, end)
        except KeyboardInterrupt:
            assert tree(at.root) in (bench.old, bench.new), number
            assert interrupted(at) is None
        else:
            break
    assert number > 50


def test_a_real_process_killed_by_sigterm_is_recovered_from(folder: Path) -> None:
    bench = Bench(folder, {}, ONE)
    at = bench.fresh()

    def child() -> None:
        def hook(n: int, name: str, args: tuple[Any, ...], call: Callable[[], Any]) -> Any:
            result = call()
            if args[0] == temporary(at.root / "vllm/a.py"):
                os.kill(os.getpid(), signal.SIGTERM)
            return result

        with hooked(hook, "replace"):
            commit(at, ONE)

    assert os.WTERMSIG(in_child(child)) == signal.SIGTERM
    assert (at.root / "vllm/a.py").read_bytes() == ONE["vllm/a.py"]
    found = interrupted(at)
    assert found is not None
    assert "vllm/a.py, vllm/models/b.py" in found
    done = recover(at)
    assert f"put back {at.root / 'vllm/a.py'}" in done
    assert tree(at.root) == bench.old
