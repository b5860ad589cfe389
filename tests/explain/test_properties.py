"""What happens to a log on its way to the reader never changes the class found in it.

The log may be mixed differently, repeated by more ranks, cut at either end and wrapped by other
programs: as long as one line that names the root cause is there, the answer is the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from explain.examples import typical
from explain.logs import FORMS, OUTER, Form, Log, Process, api_failure, interleaved, worker_failure
from explain.logs import Error as Failure
from explain.reading import class_of, read
from vllm_eagle3_patches.errors import RefusedError

ERRORS = typical()
MANY = settings(max_examples=150, deadline=None)
forms = st.sampled_from(sorted(FORMS)).map(FORMS.__getitem__)
kinds = st.sampled_from(sorted(ERRORS))
outers = st.sampled_from(sorted(OUTER)).map(OUTER.__getitem__)
choices = st.lists(st.integers(0, 11), max_size=120)


def more_ranks(form: Form, count: int) -> Form:
    first = form.workers[0]
    if "50" not in first.prefix:  # one GPU, or no prefix
        return form
    workers = [Process(first.prefix.replace("500", str(600 + i)), first.level, first.raw_prefix)
               for i in range(count)]  # fmt: skip
    return replace(form, workers=workers)


def cut(log: Log, before: float, after: float) -> Log:
    """Without some lines at the head and the tail; one line with the root stays."""
    lines = log.lines()
    roots = [i for i, line in enumerate(lines) if log.root in line]
    kept = roots[int(after * (len(roots) - 1))]
    begin = int(before * kept)
    end = kept + 1 + int((1 - after) * (len(lines) - kept - 1))
    return Log([lines[begin:end]], log.root)


@MANY
@given(forms, kinds, choices, st.integers(1, 8))
def test_mixing_and_more_ranks(form: Form, kind: str, order: list[int], ranks: int) -> None:
    log = worker_failure(more_ranks(form, ranks), ERRORS[kind])
    assert class_of(interleaved(log, order).text()) == kind


@MANY
@given(forms, kinds, choices, st.floats(0, 1), st.floats(0, 1), outers)
def test_cut_and_wrapped(
    form: Form,
    kind: str,
    order: list[int],
    before: float,
    after: float,
    outer: object,
) -> None:
    log = cut(interleaved(worker_failure(form, ERRORS[kind]), order), before, after)
    assert class_of(log.text(outer)) == kind  # type: ignore[arg-type]


@MANY
@given(forms, st.sampled_from(["model-type", "length", "argument"]), st.floats(0, 1), outers)
def test_a_validation_error_cut_and_wrapped(
    form: Form, kind: str, before: float, outer: object
) -> None:
    invalid = Failure("ValueError", ERRORS[kind].message)
    log = api_failure(form, invalid)
    lines = log.lines()
    [root] = [i for i, line in enumerate(lines) if invalid.message in line]
    kept = Log([lines[int(before * root) :]])
    assert class_of(kept.text(outer)) == kind  # type: ignore[arg-type]


@MANY
@given(forms, kinds, st.integers(1, 4000), outers)
def test_pieces_of_any_size(form: Form, kind: str, size: int, outer: object) -> None:
    text = worker_failure(form, ERRORS[kind]).text(outer)  # type: ignore[arg-type]
    assert read(text, size) == read(text)


@MANY
@given(st.lists(st.one_of(st.binary(max_size=300), st.sampled_from(
    [line.encode() for line in worker_failure(FORMS["0.11"], ERRORS["interface"]).lines()]
)), max_size=40), st.integers(1, 500))  # fmt: skip
def test_nothing_in_a_log_is_an_error_of_ours(lines: list[bytes], size: int) -> None:
    with contextlib.suppress(RefusedError):  # only of a file packed in a way it names
        read(b"\n".join(lines), size)


@MANY
@given(forms, kinds, st.lists(st.sampled_from([
    "INFO:     10.0.0.7:30000 - \"GET /health HTTP/1.1\" 404 Not Found",
    "(APIServer pid=1) INFO 10-06 18:54:31 [loggers.py:257] Running: 3 reqs",
    "(APIServer pid=1) WARNING 10-06 18:54:31 [x.py:1] Value error, or so it seems",
    "(APIServer pid=1) DEBUG 10-06 18:54:31 [x.py:1] RuntimeError: was caught",
    "",
]), max_size=60), choices)  # fmt: skip
def test_other_lines_between(form: Form, kind: str, noise: list[str], order: list[int]) -> None:
    log = worker_failure(form, ERRORS[kind])
    mixed = interleaved(Log([*log.streams, noise], log.root), order)
    assert class_of(mixed.text()) == kind
