"""The end of a process group, with the shared memory that its processes cannot unlink any more."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

# In `/dev/shm`, of Python's multiprocessing, torch and NCCL; as `/proc/PID/maps` has them.
SEGMENT = re.compile(r"(/dev/shm/(?:psm_|sem\.mp-|torch_|nccl-)\S+)$", re.MULTILINE)
TRACKER = b"multiprocessing.resource_tracker"  # unlinks what the others made, once they are gone
PATIENCE = 2.0  # seconds


def processes(group: int) -> Iterator[Path]:
    """The folders below `/proc` of the processes of a group; none where there is no `/proc`."""
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group and fields[0] != "Z":
                    yield entry


def kill(group: int) -> None:
    """Kills all of it, whether its leader is still there or not: first those who hold shared
    memory, and when it is unlinked those who do that."""
    held = set(_mapped(group))
    for process in processes(group):
        with contextlib.suppress(OSError):
            if TRACKER not in (process / "cmdline").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
    end = time.monotonic() + PATIENCE
    while any(processes(group)) and time.monotonic() < end:
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    for name in held:
        with contextlib.suppress(OSError):
            name.unlink()


def _mapped(group: int) -> Iterator[Path]:
    for process in processes(group):
        with contextlib.suppress(OSError):
            yield from map(Path, SEGMENT.findall((process / "maps").read_text()))
