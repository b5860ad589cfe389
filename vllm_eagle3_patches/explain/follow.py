"""A log that is still being written: read on until the server is up, or has failed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from vllm_eagle3_patches.errors import UsageError
from vllm_eagle3_patches.explain.scan import BLOCK, Scanner

POLL = 0.1  # seconds
APPEARS_WITHIN = 10.0  # seconds: the shell that starts the server may be slower than we are
SETTLED = 1.0  # seconds of silence after a line that says that the server is dead
SILENT = 10.0  # seconds of silence after an error nobody called fatal, or of talk after a fatal one


def follow(path: Path, told: Callable[[Scanner], None] = lambda _: None) -> Scanner:
    """Reads the file as it grows; returns when its server is up, or has failed.

    A file that is replaced or cut short is read anew from its beginning, as one log.

    Args:
        told: called whenever something was read.

    Raises:
        UsageError: there is no such file, and none appears.
    """
    scanner = Scanner()
    heard = time.monotonic()  # when there was something new, and when the first fatal line came
    dying: float | None = None
    for data in _growing(path):
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


def _growing(path: Path) -> Iterator[bytes]:
    """What is in the file, piece by piece; an empty piece whenever there is no more for now."""
    stream = _opened(path)
    try:
        while True:
            data = stream.read(BLOCK)
            yield data
            if not data:
                time.sleep(POLL)
                if _replaced(path, stream):
                    stream.close()
                    stream = _opened(path)
    finally:
        stream.close()


def _opened(path: Path) -> BinaryIO:
    deadline = time.monotonic() + APPEARS_WITHIN
    while True:
        try:
            return path.open("rb")
        except FileNotFoundError:
            if time.monotonic() > deadline or not path.parent.is_dir():
                raise UsageError("there is no such log", where=path) from None
            time.sleep(POLL)
        except (IsADirectoryError, NotADirectoryError, PermissionError) as error:
            raise UsageError(f"the log cannot be read: {error.strerror}", where=path) from None


def _replaced(path: Path, stream: BinaryIO) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    here = os.fstat(stream.fileno())
    return (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino) or (
        there.st_size < stream.tell()
    )
