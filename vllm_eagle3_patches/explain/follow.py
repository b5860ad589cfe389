"""A log that is still being written: read on until the server is up, or has failed."""

from __future__ import annotations

import os
import select
import stat
import sys
import time
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

from vllm_eagle3_patches.errors import UsageError
from vllm_eagle3_patches.explain.scan import BLOCK, Scanner

STANDARD_INPUT = "-"
MARK = 256  # bytes at either end of what was read by which a file is known again
POLL = 0.1  # seconds
APPEARS_WITHIN = 10.0  # seconds: the shell that starts the server may be slower than we are
SETTLED = 1.0  # seconds of silence after a line that says that the server is dead
SILENT = 10.0  # seconds of silence after an error nobody called fatal, or of talk after a fatal one


def follow(path: Path, told: Callable[[Scanner], None] = lambda _: None) -> Scanner:
    """Reads the file as it grows; returns when its server is up, or has failed.

    A file that is replaced, cut short or written anew is read from its beginning, as one log. A
    pipe, or `-` for the standard input, is followed until it ends.

    Args:
        told: called whenever something was read.

    Raises:
        UsageError: there is no such file, and none appears.
    """
    scanner = Scanner()
    heard = time.monotonic()  # when there was something new, and when the first fatal line came
    dying: float | None = None
    for data in _growing(path, scanner.again):
        now = time.monotonic()
        if data:
            heard = now
            scanner.feed(data)
            told(scanner)
        if len(data) == BLOCK:
            continue  # what was written before we came
        if not scanner.story.now.fatal_at:
            dying = None
        elif dying is None:
            dying = now
        if _is_over(scanner, now - heard, 0 if dying is None else now - dying):
            break
    scanner.finish()
    return scanner


def _is_over(scanner: Scanner, silence: float, dying: float) -> bool:
    story = scanner.story
    if story.now.fatal_at:
        return silence >= SETTLED or dying >= SILENT
    if story.now.facts.up and not story.now.facts.stopped_at:
        return True
    if silence < SILENT:
        return False
    story.flush()
    return story.now.failed


def _growing(path: Path, again: Callable[[], None]) -> Iterator[bytes]:
    """What is in the file, piece by piece; an empty piece whenever there is no more for now.

    A pipe ends where its writer ends; a file never does. `again` is called where a file begins
    anew.
    """
    if str(path) == STANDARD_INPUT:
        yield from _piped(sys.stdin.fileno())
        return
    file = _File(path)
    try:
        if not stat.S_ISREG(os.fstat(file.stream.fileno()).st_mode):
            yield from _piped(file.stream.fileno())
            return
        while True:
            data = file.read()
            yield data
            if not data:
                time.sleep(POLL)
                if file.is_replaced():
                    while rest := file.read():  # what came between the last look and the end
                        yield rest
                    again()
                    file.open()
                elif file.is_rewritten():
                    again()
                    file.rewind()
    finally:
        file.stream.close()


def _piped(descriptor: int) -> Iterator[bytes]:
    while True:
        ready, _, _ = select.select([descriptor], [], [], POLL)
        data = os.read(descriptor, BLOCK) if ready else b""
        if ready and not data:
            return
        yield data


class _File:
    """A file that may be emptied, written anew or replaced by another while it is read."""

    stream: FileIO

    def __init__(self, path: Path) -> None:
        self.path = path
        self.open()

    def open(self) -> None:
        if hasattr(self, "stream"):
            self.stream.close()
        self.stream = _opened(self.path)
        self._head = self._tail = b""

    def rewind(self) -> None:
        self.stream.seek(0)
        self._head = self._tail = b""

    def read(self) -> bytes:
        data = self.stream.read(BLOCK) or b""
        if len(self._head) < MARK:
            self._head += data[: MARK - len(self._head)]
        self._tail = (self._tail + data)[-MARK:]
        return data

    def is_replaced(self) -> bool:
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        here = os.fstat(self.stream.fileno())
        return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino)

    def is_rewritten(self) -> bool:
        """Whether what was read is no longer there: also when as much stands there again."""
        descriptor, position = self.stream.fileno(), self.stream.tell()
        if os.fstat(descriptor).st_size < position:
            return True
        tail = os.pread(descriptor, len(self._tail), position - len(self._tail))
        return tail != self._tail or os.pread(descriptor, len(self._head), 0) != self._head


def _opened(path: Path) -> FileIO:
    deadline = time.monotonic() + APPEARS_WITHIN
    while True:
        try:
            return path.open("rb", buffering=0)
        except FileNotFoundError:
            if time.monotonic() > deadline or not path.parent.is_dir():
                raise UsageError("there is no such log", where=path) from None
            time.sleep(POLL)
        except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
            raise UsageError(f"the log cannot be read: {error.strerror}", where=path) from None
