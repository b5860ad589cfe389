from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest

from vllm_eagle3_patches.cli import signals

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def handlers() -> Iterator[None]:
    """Those that Python begins with, whatever this process was started to ignore: SIGINT in a
    background job, SIGHUP under `nohup`."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    for number in NUMBERS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_signal_to_end_goes_the_way_of_ctrl_c_and_the_next_ones_change_nothing(
    handlers: None, number: signal.Signals
) -> None:
    with pytest.raises(KeyboardInterrupt), signals.handled():
        os.kill(os.getpid(), number)
        time.sleep(5)
    for other in NUMBERS:  # while the process ends
        os.kill(os.getpid(), other)


def test_handlers_are_put_back_where_no_signal_came(handlers: None) -> None:
    before = [signal.getsignal(number) for number in NUMBERS]
    with signals.handled():
        assert [signal.getsignal(number) for number in NUMBERS] != before
    assert [signal.getsignal(number) for number in NUMBERS] == before


def test_what_is_ignored_stays_ignored(handlers: None) -> None:
    """`nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with signals.handled():
        os.kill(os.getpid(), signal.SIGHUP)
