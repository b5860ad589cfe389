from __future__ import annotations

import pytest

from explain.cases import CASES, Case
from explain.logs import OUTER
from explain.reading import read
from vllm_eagle3_patches.explain.report import UP


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.url)
def test_the_case_has_its_right_answer(case: Case) -> None:
    found = read("".join(f"{line}\n" for line in case.lines).encode())
    if case.kind is None:
        assert (found.status, found.cause) == (UP, None)
        assert [doubt.kind for doubt in found.also] == ([case.also] if case.also else [])
    else:
        assert found.cause is not None
        assert found.cause.kind == case.kind
        assert found.fix or found.apply
    assert found.apply == case.apply


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.url)
def test_an_outer_prefix_changes_nothing(case: Case, outer: str) -> None:
    log = "".join(f"{OUTER[outer](line)}\n" for line in case.lines).encode()
    cause = read(log).cause
    assert (cause and cause.kind) == case.kind
