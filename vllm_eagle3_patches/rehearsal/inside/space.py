"""Whether something failed for want of room where the twins lie."""

from __future__ import annotations

import errno
import os
from pathlib import Path

SCRAP = 1 << 20  # bytes left on a disk that is full: too few for the next thing to write
TEXTS = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT))


def lacking(folder: Path, text: str) -> bool:
    """Whether a failure with this text was one: not each that says so is an OSError
    (safetensors' own is not), and not each on a full disk says so."""
    return any(each in text for each in TEXTS) or full(folder)


def full(folder: Path) -> bool:
    """Whether nothing more can be written there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize < SCRAP or (found.f_files > 0 and found.f_favail == 0)
