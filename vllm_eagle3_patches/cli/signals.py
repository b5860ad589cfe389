"""Signals that ask a command to end."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def handled() -> Iterator[None]:
    """SIGTERM and SIGHUP end a command as Ctrl-C does: with everything cleaned up, whatever
    signals come from then on.  What this process was started to ignore (`nohup`) it ignores."""

    def end(_: int, __: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)
        before.clear()  # to the end of the process, whose status is to be ours
        raise KeyboardInterrupt

    before: dict[int, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            continue
        try:
            before[number] = signal.signal(number, end)
        except ValueError:  # not in the main thread: then it is the caller's business
            break
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
