"""Children: gone on every way out, with all that they started, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vllm_eagle3_patches.rehearsal import supervise
from vllm_eagle3_patches.rehearsal.inside.alive import TEMPORARY

# A child that starts a grandchild, as vLLM starts workers, and then waits.
FAMILY = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
# What runs in the target's interpreter ends with its parent.
FAITHFUL = """
import sys, time
sys.path.insert(0, sys.argv[2])
from vllm_eagle3_patches.rehearsal.inside import alive
from pathlib import Path
alive.end_with_parent(Path(sys.argv[1]))
from multiprocessing import shared_memory
held = shared_memory.SharedMemory(create=True, size=100)
print("ready", held.name, flush=True)
time.sleep(600)
"""
SHARING = """
import time
from multiprocessing import shared_memory
held = [shared_memory.SharedMemory(create=True, size=size) for size in (100, 100_000)]
print(*(one.name for one in held), flush=True)
time.sleep(600)
"""
PARENT = """
import os, sys, time
from pathlib import Path
from vllm_eagle3_patches.rehearsal import supervise
with supervise.child(sys.argv[2:], dict(os.environ), Path(sys.argv[1]), Path(sys.argv[1]) / "log"):
    time.sleep(600)
"""
ROOT = Path(supervise.__file__).parents[2]


def until(condition: object, seconds: float = 20) -> None:
    assert callable(condition)
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    """Ended; a zombie that nobody has waited for has ended too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def family(tmp_path: Path) -> tuple[list[str], Path]:
    return [sys.executable, "-c", FAMILY], tmp_path / "log"


@pytest.mark.parametrize("way", [None, KeyboardInterrupt, ValueError])
def test_the_whole_group_is_gone_on_every_way_out(
    tmp_path: Path, way: type[BaseException] | None
) -> None:
    words, log = family(tmp_path)
    seen: list[int] = []

    def use() -> None:
        with supervise.child(words, dict(os.environ), tmp_path, log) as running:
            until(lambda: log.exists() and log.read_text().endswith("\n"))
            seen.extend((running.process.pid, int(log.read_text())))
            if way is not None:
                raise way

    if way is None:
        use()
    else:
        with pytest.raises(way):
            use()
    until(lambda: all(map(gone, seen)))


def test_a_child_that_ended_leaves_no_grandchild(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = [sys.executable, "-c", FAMILY.rpartition("time.sleep")[0]]
    with supervise.child(words, dict(os.environ), tmp_path, log) as running:
        until(lambda: running.ended() is not None)
        pid = int(log.read_text())
        assert not gone(pid)
    until(lambda: gone(pid))


def test_shared_memory_goes_with_those_who_held_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = [sys.executable, "-c", SHARING]
    with supervise.child(words, dict(os.environ), tmp_path, log):
        until(lambda: log.exists() and log.read_text().endswith("\n"))
        names = [Path("/dev/shm", name.lstrip("/")) for name in log.read_text().split()]
        assert names and all(name.exists() for name in names)
    assert not any(name.exists() for name in names)


@pytest.mark.parametrize(("name", "stays"), [(f"{TEMPORARY}x", False), ("kept", True)])
def test_the_child_ends_when_its_parent_is_killed(tmp_path: Path, name: str, stays: bool) -> None:
    place = tmp_path / name
    place.mkdir()
    inner = [sys.executable, "-c", FAITHFUL, str(place), str(ROOT)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(place), *inner], env=env)
    try:
        log = place / "log"
        until(lambda: log.exists() and log.read_text().endswith("\n"))
        segment = Path("/dev/shm", log.read_text().split()[1].lstrip("/"))
        assert segment.exists()
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    finally:
        parent.kill()
        parent.wait()
    assert children
    until(lambda: all(gone(int(pid)) for pid in children))
    until(lambda: place.exists() == stays)
    until(lambda: not segment.exists())


def test_events_come_in_whole_lines(tmp_path: Path) -> None:
    events = supervise.Events(tmp_path / "events")
    with (tmp_path / "events").open("a") as file:
        file.write('{"event": "begin"}\n{"event": "pas')
    assert [event["event"] for event in events.new()] == ["begin"]
    with (tmp_path / "events").open("a") as file:
        file.write('sed"}\n')
    assert [event["event"] for event in events.new()] == ["passed"]
    assert list(events.new()) == []


def test_memory_of_a_group(tmp_path: Path) -> None:
    words = [sys.executable, "-c", "x = bytearray(50_000_000); print(1, flush=True); input()"]
    log = tmp_path / "log"
    with supervise.child(words, dict(os.environ), tmp_path, log) as running:
        until(lambda: log.exists() and log.read_text())
        assert 50_000_000 < supervise.memory(running.process.pid) < 100_000_000
