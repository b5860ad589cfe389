"""Commands at work at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from command import call, difference, info_of, snapshot, start, unchanged

from bad_input.outcome import WRITING, refused, works


def test_two_applies_at_once(site: Path) -> None:
    pristine = snapshot(site)
    for _ in range(3):
        both = [start("apply", site=site, out=subprocess.PIPE) for _ in range(2)]
        said = [process.communicate() for process in both]
        assert [process.returncode for process in both] == [0, 0], said
        wrote = sorted(out.count(b"wrote ") for out, _ in said)
        assert wrote == [0, 4]
        assert call("check", site=site).code == 0
        assert call("revert", site=site).code == 0
        assert difference(pristine, snapshot(site)) == set()


def test_apply_against_revert_and_check(site: Path) -> None:
    pristine = snapshot(site)
    call("apply", site=site)
    patched = snapshot(site)
    for number in range(3):
        commands = ["revert", "apply", "check"] if number % 2 else ["apply", "revert", "check"]
        all_three = [start(command, site=site, out=subprocess.PIPE) for command in commands]
        said = [process.communicate() for process in all_three]
        codes = [process.returncode for process in all_three]
        assert codes[:2] == [0, 0], said
        assert codes[2] in (0, 1, 6), said
        if codes[2] == 6:
            assert b"another run of vllm-eagle3-patch is at work" in said[2][1]
        assert not any(b"Traceback" in errors for _, errors in said)
        now = snapshot(site)
        assert set() in (difference(pristine, now), difference(patched, now))


def test_a_run_that_does_not_end(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is held: the others wait a while, then give up and say why."""
    from vllm_eagle3_patches.transaction import Transaction

    initial = Transaction.__init__
    monkeypatch.setattr(Transaction, "__init__", lambda self, at: initial(self, at, 0.1))
    holder = "import fcntl, os, sys, time; fd = os.open(sys.argv[1], os.O_RDONLY)\n"
    holder += "fcntl.flock(fd, fcntl.LOCK_EX); print('held', flush=True); time.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-c", holder, info_of(site)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            for command in WRITING:
                refused(6, "another run", str(info_of(site)), command=command, site=site)
            with unchanged(site):
                assert call("check", site=site).code == 1
        finally:
            process.kill()
    works(site)
