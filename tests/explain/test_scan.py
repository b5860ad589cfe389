from __future__ import annotations

import io
import tracemalloc

import pytest

from explain.logs import FORMS, Error, healthy, worker_failure
from explain.reading import read
from vllm_eagle3_patches.explain.report import FAILED, LOADING, Report, report
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


def _found(*parts: bytes, piece: int = BLOCK) -> Report:
    return read(b"".join(parts), piece)


WORKER = "(Worker_TP0 pid=500) ERROR 10-06 18:54:30 [a.py:1] "
FLOODS = {
    "one line": lambda i: "Error",
    "numbered": lambda i: f"{i} requests failed: Error",
    "exceptions": lambda i: f"ValueError: request {i}",
    "processes": lambda i: f"(Worker_TP{i} pid={i}) ERROR 10-06 18:54:30 [a.py:1] ValueError: {i}",
    "headers": lambda i: f"(Worker_TP{i} pid={i}) Traceback (most recent call last):",
    "frames": lambda i: f'  File "/x/a{i}.py", line {i}, in f\n    f()',
    "tracebacks": lambda i: f"{WORKER}Traceback (most recent call last):\n{WORKER}ValueError: {i}",
    "bars": lambda i: f"Loading safetensors checkpoint shards: {i % 100}% Completed | 1/9",
    "json": lambda i: f'{{"log": "ValueError: {i}", "stream": "stderr"}}',
}


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_hides_nothing_that_stands_after_it(kind: str) -> None:
    flood = "".join(f"{FLOODS[kind](i)}\n" for i in range(3000)).encode()
    found = _found(flood, LOG.text())
    assert found.cause is not None and found.cause.kind == "interface"
    assert _found(flood, LOG.text(), piece=777) == found
    lines = len(flood.splitlines())
    at = next(n for n, line in enumerate(LOG.lines(), 1) if LOG.root in line)
    assert found.cause.log_line == lines + at


@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_costs_what_its_bytes_cost(kind: str) -> None:
    flood = "".join(f"{FLOODS[kind](i)}\n" for i in range(60_000)).encode()
    scanner = Scanner()
    looked = 0
    line = scanner._line

    def counted(raw: bytes, number: int) -> None:
        nonlocal looked
        looked += 1
        line(raw, number)

    scanner._line = counted  # type: ignore[method-assign]
    scanner.feed(flood)
    assert looked < 9000
    assert scanner.lines == len(flood.splitlines())


def test_what_is_repeated_is_counted_to_the_last() -> None:
    found = _found(healthy(FORMS["0.11"]).text(), b"Killed\n" * 5000)
    assert found.cause is not None and found.repeated == 5000


def test_the_last_of_many_bars_counts() -> None:
    bars = [f"Loading safetensors checkpoint shards: {i}% Completed | 1/9" for i in range(84)]
    for log in ("\n".join(bars), "\r".join(bars)):
        facts = _found(b"INFO 10-06 18:54:30 [a.py:1] x\n", log.encode(), b"\n").facts
        assert facts.percent == 83


def test_the_rate_of_acceptance_is_of_all_reports() -> None:
    metrics = "".join(
        f"INFO 10-06 18:54:30 [m.py:1] SpecDecoding metrics: Accepted: {i} tokens, Drafted: 9 "
        "tokens\n"
        for i in range(5000)
    )
    assert _found(metrics.encode()).facts.drafted == 45_000


def test_one_line_of_many_records_hides_nothing() -> None:
    records = "".join(f"(Worker_TP0 pid={i}) ERROR 10-06 18:54:30 [a.py:1] x " for i in range(3000))
    root = f"{WORKER}RuntimeError: Model does not support EAGLE3 interface"
    found = _found(records.encode(), root.encode())
    assert found.cause is not None and found.cause.kind == "interface"
