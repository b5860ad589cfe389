from __future__ import annotations

import io
import tracemalloc

import pytest

from explain.logs import FORMS, Error, healthy, worker_failure
from explain.reading import read
from vllm_eagle3_patches.explain.report import FAILED, LOADING, report
from vllm_eagle3_patches.explain.scan import BLOCK, LONGEST_LINE, Scanner

LOG = worker_failure(
    FORMS["0.11"], Error("RuntimeError", "Model does not support EAGLE3 interface")
)
NOISE = b'(APIServer pid=1) INFO:     10.0.0.7:30000 - "GET /health HTTP/1.1" 404 Not Found\n'


def test_lines_are_counted_also_those_that_are_not_looked_at() -> None:
    scanner = Scanner()
    for part in (NOISE * 5, LOG.text(), NOISE * 7):
        scanner.feed(part)
    scanner.finish()
    assert scanner.lines == 12 + len(LOG.lines())
    cause = report(scanner.story).cause
    assert cause is not None
    [*_, at] = [i for i, line in enumerate(LOG.lines()[:6], 1) if LOG.root in line]
    assert cause.log_line == 5 + at


def test_a_last_line_without_an_end() -> None:
    found = read(b"ValueError: x\nRuntimeError: Model does not support EAGLE3 interface")
    assert found.cause is not None
    assert (found.cause.kind, found.cause.log_line) == ("interface", 2)


@pytest.mark.parametrize("size", [1, 7, 100, 4096])
def test_pieces(size: int) -> None:
    assert read(LOG.text(), size) == read(LOG.text())


def test_a_stream_is_read_in_blocks() -> None:
    asked = []

    class Stream(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            asked.append(size)
            return super().read(size)

    scanner = Scanner()
    scanner.read(Stream(LOG.text()))
    assert set(asked) == {BLOCK}
    assert report(scanner.story).status == FAILED


def test_endless_lines_and_binary_data() -> None:
    scanner = Scanner()
    tracemalloc.start()
    for _ in range(40):
        scanner.feed(b"\x00\xff{(pid=\xc3" * (LONGEST_LINE // 32))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    scanner.finish()
    assert peak < 12 * LONGEST_LINE
    assert report(scanner.story).status == LOADING


def test_memory_does_not_grow_with_the_log() -> None:
    scanner = Scanner()
    each = b"".join(
        f"(Worker_TP0 pid=5) ERROR 10-06 18:54:30 [a.py:{i}] ValueError: number {i}\n".encode()
        for i in range(2000)
    )
    serving = healthy(FORMS["0.11"]).text()
    scanner.feed(serving + each)
    tracemalloc.start()
    for _ in range(5):
        scanner.feed(serving + NOISE * 1000 + each)
    now, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now < 300_000


def test_an_empty_log() -> None:
    scanner = Scanner()
    scanner.finish()
    assert not scanner.story.recognised
    assert report(scanner.story).status == LOADING
