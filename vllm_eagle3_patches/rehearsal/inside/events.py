"""What a child process tells the parent: one JSON object a line, appended to a file.

A file, and not a pipe, because worker processes of vLLM write to it too.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any


class Failed(Exception):
    """A stage did not show what it must; the message says what it showed."""


_path: str | None = None
_begun: list[str] = []


def to(path: str) -> None:
    """Events go to this file from here on."""
    global _path
    _path = path


def send(event: str, **facts: Any) -> None:
    if _path is None:
        return
    line = json.dumps({"event": event, "time": time.time(), **facts}) + "\n"
    descriptor = os.open(_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def begin(stage: str) -> None:
    send("begin", stage=stage)


def passed(stage: str, detail: str = "", **facts: Any) -> None:
    send("passed", stage=stage, detail=detail, facts=facts)


def skipped(stage: str, detail: str) -> None:
    send("skipped", stage=stage, detail=detail, facts={})


def left(stage: str, why: str) -> None:
    """It is not run here."""
    send("left", stage=stage, detail=why)


def failed(stage: str | None, detail: str, **facts: Any) -> None:
    """`stage` None: the one begun last."""
    send("failed", stage=stage, detail=detail, facts=facts)
