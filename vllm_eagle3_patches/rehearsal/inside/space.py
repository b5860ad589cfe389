"""Whether there is room left where the twins lie."""

from __future__ import annotations

import os
from pathlib import Path

SCRAP = 1 << 20  # bytes left on a disk that is full: too few for the next thing to write


def full(folder: Path) -> bool:
    """Whether nothing more can be written there."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize < SCRAP or (found.f_files > 0 and found.f_favail == 0)
