"""Commands that are cut off, at any instant.

A killed or failing call at each step of a transaction is in test_crash.py.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from command import CONFIG, LOADER, RECEIPT, call, difference, info_of, snapshot, start, unchanged

from bad_input.outcome import WRITING, refused
from vllm_eagle3_patches.files import temporary


@pytest.fixture
def lives(site: Path, request: pytest.FixtureRequest) -> Lives:
    return Lives(site, request.param)


class Lives:
    """An installation on which `command` begins again and again, and is cut off."""

    def __init__(self, site: Path, command: str) -> None:
        self.site, self.command = site, command
        self.pristine = snapshot(site)
        call("apply", site=site)
        self.patched = snapshot(site)
        if command == "apply":
            call("revert", site=site)
        self.model = Path(shutil.copytree(site, site.parent / "model"))
        self.found: list[str] = []

    @contextmanager
    def begun(self) -> Iterator[subprocess.Popen[bytes]]:
        """The command at work; what it left is looked at, and mended, when it is gone."""
        shutil.rmtree(self.site)
        shutil.copytree(self.model, self.site)
        with start(self.command, site=self.site) as process:
            yield process
        self._look(len(self.found) % 2 == 0)

    def _look(self, apply_first: bool) -> None:
        left = snapshot(self.site)
        with unchanged(self.site):
            told = call("check", "--json", site=self.site)
        state = told.json["installation"]
        self.found.append(state)
        if state == "interrupted":
            assert told.code == 4
            for command in ("diff", "apply --dry-run"):
                said = ("interrupted", "vllm-eagle3-patch apply", "vllm-eagle3-patch revert")
                refused(4, *said, command=command, site=self.site)
        else:
            whole = {"pristine": self.pristine, "patched": self.patched}[state]
            assert difference(left, whole) == set()
            assert told.code == (1 if state == "pristine" else 0)
        order = [("apply", self.patched), ("revert", self.pristine)]
        for command, expected in order if apply_first else reversed(order):
            done = call(command, site=self.site)
            assert done.code == 0
            if state == "interrupted":
                assert "note: " in done.out
                state = "mended"
            assert difference(expected, snapshot(self.site)) == set()


@pytest.mark.parametrize("lives", WRITING, indirect=True)
def test_killed_at_any_instant(lives: Lives) -> None:
    """SIGKILL after ever more time, until the command is through."""
    delay, killed = 0.005, 0
    for _ in range(40):
        with lives.begun() as process:
            time.sleep(delay)
            process.kill()
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL
        killed += 1
        delay *= 1.25  # in the end far more than any machine needs
    assert killed  # the first time is shorter than the start of any interpreter


@pytest.mark.parametrize("lives", WRITING, indirect=True)
def test_killed_between_any_two_writes(lives: Lives) -> None:
    """As soon as a file of the run's appears, or is replaced."""
    info, site = info_of(lives.site), lives.site
    watched = [site / CONFIG, site / LOADER, info / RECEIPT, info / "RECORD"]
    for path in [*map(temporary, watched), *watched]:
        with lives.begun() as process:
            was = _stamp(path)
            while process.poll() is None and _stamp(path) == was:
                pass
            process.kill()
    assert "interrupted" in lives.found


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        state = path.lstat()
    except FileNotFoundError:
        return None
    return state.st_ino, state.st_mtime_ns


@pytest.mark.parametrize("lives", ["apply"], indirect=True)
def test_other_signals(lives: Lives) -> None:
    """`docker stop`, a lost terminal and Ctrl-C: all or nothing."""
    staged = temporary(lives.site / LOADER)
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        with lives.begun() as process:
            while process.poll() is None and not staged.exists():
                pass
            process.send_signal(signum)
            _, errors = process.communicate()
            assert b"Traceback" not in errors
        assert process.returncode in (130, 0)
        assert lives.found[-1] in ("pristine", "patched")  # no work is left to the next command
