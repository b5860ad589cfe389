"""Every form of a log around an error of every class."""

from __future__ import annotations

import pytest

from explain.examples import typical
from explain.logs import (
    FORMS,
    OUTER,
    Error,
    Frame,
    api_failure,
    flattened,
    healthy,
    worker_failure,
)
from explain.reading import class_of, read
from vllm_eagle3_patches.explain.report import UP

ERRORS = typical()
# Configuration errors, which the API server reports through pydantic.
CONFIGURATION = {
    kind: error
    for kind, error in ERRORS.items()
    if kind in ("model-type", "drafter", "pipeline-parallel", "length", "argument")
}


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("form", FORMS)
def test_the_class_is_found(form: str, outer: str) -> None:
    found = {
        kind: class_of(worker_failure(FORMS[form], error).text(OUTER[outer]))
        for kind, error in ERRORS.items()
    }
    assert found == {kind: kind for kind in ERRORS}


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("form", FORMS)
def test_the_class_is_found_behind_pydantic(form: str, outer: str) -> None:
    found = {}
    for kind, error in CONFIGURATION.items():
        invalid = Error("ValueError", error.message)
        found[kind] = class_of(api_failure(FORMS[form], invalid).text(OUTER[outer]))
    assert found == {kind: kind for kind in CONFIGURATION}


@pytest.mark.parametrize("form", FORMS)
def test_the_class_is_found_in_a_paste_without_line_ends(form: str) -> None:
    found = {
        kind: class_of(flattened(worker_failure(FORMS[form], e))) for kind, e in ERRORS.items()
    }
    assert found == {kind: kind for kind in ERRORS}


@pytest.mark.parametrize("form", FORMS)
def test_a_healthy_server_is_healthy(form: str) -> None:
    for outer in OUTER.values():
        found = read(healthy(FORMS[form]).text(outer))
        assert (found.status, found.cause, found.also) == (UP, None, ())


@pytest.mark.parametrize("form", FORMS)
def test_process_exception_and_frames(form: str) -> None:
    frame = Frame("vllm/v1/spec_decode/eagle.py", "load_model", "self._share(target)", 1290)
    error = Error("AttributeError", "Target model does not have 'model' attribute", [frame])
    log = worker_failure(FORMS[form], error)
    found = read(log.text())
    cause = found.cause
    assert cause is not None
    assert (cause.exception, cause.message) == (error.exception, error.message)
    assert error.message in log.lines()[cause.log_line - 1]
    [shown] = found.frames
    assert (shown.path, shown.line, shown.function) == (frame.path, 1290, "load_model")
    assert shown.code == frame.code
    assert found.edits == ("image-token", "weight-sharing")
    named = FORMS[form].workers[0].prefix
    assert cause.process is None or cause.process in named


@pytest.mark.parametrize(
    ("form", "process"),
    [
        ("v0", "VllmWorkerProcess"),
        ("0.8", "VllmWorker rank=0"),
        ("0.10.0", "VllmWorker TP0"),
        ("0.11", "Worker_TP0"),
        ("0.11, one GPU", "EngineCore_DP0"),
        ("0.18, experts", "Worker_DP0_TP0_EP0"),
        ("0.32", "Worker_PP0_TP0"),
        ("ray", "RayWorkerWrapper"),
        ("torchrun", "rank0"),
        ("own configuration", None),
    ],
)
def test_the_innermost_process_is_named(form: str, process: str | None) -> None:
    cause = read(worker_failure(FORMS[form], ERRORS["interface"]).text()).cause
    assert cause is not None
    assert cause.process == process
