"""Child processes that cannot outlive their parent, and what they say on the way.

Each child leads a process group of its own, in which vLLM's workers are too; the group is killed
on every way out of `with`.  If the parent itself is killed, the end of its pipe tells the child.
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vllm_eagle3_patches.rehearsal.inside import group

HELD = re.compile(r"^Rss(?:Anon|Shmem):\s+(\d+) kB", re.MULTILINE)


class Child:
    """A running child; its output goes to a file, as a server's log would."""

    def __init__(
        self, words: Sequence[str], env: Mapping[str, str], folder: Path, log: Path
    ) -> None:
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                list(words),
                cwd=folder,
                env=dict(env),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ended(self) -> int | None:
        return self.process.poll()

    def kill(self) -> None:
        """The whole group, whether the child itself is still there or not."""
        group.kill(self.process.pid)
        self.process.wait()
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()


@contextlib.contextmanager
def child(words: Sequence[str], env: Mapping[str, str], folder: Path, log: Path) -> Iterator[Child]:
    """A child that is gone afterwards, with all that it started."""
    running = Child(words, env, folder, log)
    try:
        yield running
    finally:
        running.kill()


class Events:
    """Reads the file that the children append to."""

    def __init__(self, path: Path) -> None:
        self.path, self.offset = path, 0
        path.touch()

    def new(self) -> Iterator[dict[str, Any]]:
        """Whole lines that have come since the last time."""
        with self.path.open("rb") as stream:
            stream.seek(self.offset)
            data = stream.read()
        whole = data.rfind(b"\n") + 1
        self.offset += whole
        for line in data[:whole].splitlines():
            yield json.loads(line)


def memory(leader: int) -> int:
    """Bytes that the processes of a group hold now; pages of files, which the system can take
    back, are not counted."""
    total = 0
    for process in group.processes(leader):
        with contextlib.suppress(OSError):
            total += sum(map(int, HELD.findall((process / "status").read_text()))) * 1024
    return total
