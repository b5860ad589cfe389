"""Shared memory of a process group: who is killed cannot unlink what is in `/dev/shm`."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

# Of Python's multiprocessing, torch and NCCL; as `/proc/PID/maps` has them.
NAMES = re.compile(r"(/dev/shm/(?:psm_|sem\.mp-|torch_|nccl-)\S+)$", re.MULTILINE)


def processes(group: int) -> Iterator[Path]:
    """The folders below `/proc` of the processes of a group."""
    for entry in Path("/proc").iterdir() if Path("/proc").is_dir() else ():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[2]) == group:
                    yield entry


def held(group: int) -> set[Path]:
    """The segments and semaphores that processes of the group have mapped."""
    found: set[Path] = set()
    for process in processes(group):
        with contextlib.suppress(OSError):
            found.update(map(Path, NAMES.findall((process / "maps").read_text())))
    return found


def remove(names: Iterable[Path]) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            name.unlink()
