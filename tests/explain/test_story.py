"""Which of many errors is the cause, and whether the server is dead at all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from explain.logs import FORMS, Error, Frame, dead_api_server, healthy, prologue, worker_failure
from explain.reading import read
from vllm_eagle3_patches.explain.report import FAILED, LOADING, STOPPED, UP, Report

FORM = FORMS["0.11"]
WORKER, OTHER = FORM.workers
ENGINE, API = FORM.engine, FORM.api
OOM = Error("torch.OutOfMemoryError", "CUDA out of memory. Tried to allocate 2.00 GiB.")
ODD = Error("RuntimeError", "an error nobody knows", [Frame("vllm/x.py", "f", "g()")])
INTERFACE = Error("RuntimeError", "Model does not support EAGLE3 interface")


def explain(*parts: Sequence[str]) -> Report:
    return read("".join(f"{line}\n" for part in parts for line in part).encode())


def logged(error: Error, process: object = WORKER) -> list[str]:
    lines: list[str] = process.logged(error.traceback(), "a.py:1")  # type: ignore[attr-defined]
    return lines


def kind(found: Report) -> str | None:
    return found.cause and found.cause.kind


def test_wrappers_are_never_the_cause() -> None:
    found = explain(
        ENGINE.logged(["EngineCore failed to start."], "core.py:1"),
        logged(Error("RuntimeError", "Executor failed."), ENGINE),
        logged(INTERFACE),
        dead_api_server(FORM),
    )
    assert kind(found) == "interface"
    assert found.also == ()


def test_other_processes_may_talk_in_the_middle_of_a_traceback() -> None:
    code = "assert isinstance(self.model, Eagle3LlamaForCausalLM)"
    frame = Frame("vllm/v1/spec_decode/eagle.py", "propose", code)
    *head, last = logged(Error("AssertionError", "", [frame]))
    others = OTHER.logged(["something went wrong"] * 300, "b.py:1")
    assert kind(explain(head, others, [last])) == "drafter"


def test_only_wrappers_is_unknown_and_says_so() -> None:
    found = explain(dead_api_server(FORM))
    assert (found.status, kind(found)) == (FAILED, "unknown")
    assert "whole log" in (found.fix or "")


def test_a_quoted_cause_counts_where_the_worker_is_missing() -> None:
    quoted = Error(
        "RuntimeError",
        f"Worker failed with error '{INTERFACE.message}', please check the stack trace above "
        "for the root cause",
    )
    found = explain(logged(quoted, ENGINE), dead_api_server(FORM))
    assert kind(found) == "interface"
    assert found.cause is not None and found.cause.process == "EngineCore_DP0"
    found = explain(logged(quoted, ENGINE), logged(INTERFACE))
    assert found.cause is not None and found.cause.process == "Worker_TP0"


def test_an_unknown_root_beats_a_known_consequence() -> None:
    nccl = Error("torch.distributed.DistBackendError", "NCCL error in: x.cpp:1")
    assert kind(explain(logged(nccl, OTHER), logged(ODD))) == "unknown"
    assert kind(explain(logged(nccl, OTHER))) == "runtime"


def test_a_known_root_beats_an_unknown_one() -> None:
    found = explain(logged(ODD), logged(INTERFACE))
    assert kind(found) == "interface"
    assert [other.message for other in found.also] == [ODD.message]


def test_the_innermost_process_then_the_earliest() -> None:
    found = explain(logged(OOM, API), logged(INTERFACE, ENGINE), logged(OOM), logged(INTERFACE))
    assert kind(found) == "runtime"
    assert found.cause is not None and found.cause.process == "Worker_TP0"


def test_ranks_are_counted_once() -> None:
    found = read(worker_failure(FORM, INTERFACE).text())
    assert found.repeated == 2
    assert found.also == ()


def test_a_cause_at_the_end_of_a_process_comes_before_its_repetition() -> None:
    core = Frame("vllm/v1/engine/core.py", "run_engine_core", "raise e")
    error = Error("RuntimeError", "an error nobody knows", [core])
    found = explain(logged(error, ENGINE), error.traceback(), error.traceback(), ["another line"])
    assert found.cause is not None
    assert (found.cause.process, found.cause.log_line) == ("EngineCore_DP0", 5)
    assert found.repeated == 3


def test_a_server_that_was_told_to_stop() -> None:
    told = "[shutdown] EngineCore: trigger received signal=SIGTERM"
    cancelled = Error(
        "RuntimeError",
        "cancelled",
        [Frame("vllm/distributed/device_communicators/shm_broadcast.py", "acquire_read", "raise")],
    )
    found = explain(ENGINE.logged([told], "core.py:1", "INFO"), logged(cancelled, ENGINE))
    assert kind(found) == "runtime"
    assert "SIGTERM" in (found.what or "")
    ended = API.raw(["INFO:     Application shutdown complete."])
    up = healthy(FORM).lines()
    dead = Error("vllm.v1.engine.exceptions.EngineDeadError", "EngineCore encountered an issue.")
    for last in (
        [],
        ended,
        API.logged(["AsyncLLM output_handler failed.", *dead.traceback()], "a"),
    ):
        found = explain(up, ENGINE.logged([told], "core.py:1", "INFO"), last)
        assert found.status == STOPPED, last


def test_in_a_chain_the_first_known_exception_counts() -> None:
    link = "During handling of the above exception, another exception occurred:"
    chain = [*ODD.traceback(), "", link, "", *INTERFACE.traceback(), "", link, "", *OOM.traceback()]
    assert kind(explain(WORKER.logged(chain, "a.py:1"))) == "interface"


@pytest.mark.parametrize(
    ("codes", "word"), [("{'EngineCore_DP0': -11}", "segmentation"), ("{'E': -9}", "killed")]
)
def test_a_core_that_was_ended_by_a_signal(codes: str, word: str) -> None:
    found = explain(dead_api_server(FORM, codes))
    assert kind(found) == "runtime"
    assert word in (found.what or "")
    assert kind(explain(logged(ODD), dead_api_server(FORM, codes))) == "unknown"


def test_a_segfault_among_native_frames() -> None:
    found = explain(
        ["!!!!!!! Segfault encountered !!!!!!!"],
        ['  File "misc/cudawrap.cc", line 92, in ncclCuMemHostEnable()'],
        dead_api_server(FORM, "{'EngineCore_DP0': -11}"),
    )
    assert kind(found) == "runtime"
    assert found.cause is not None and found.cause.log_line == 1


def test_a_kernel_assertion_beats_the_error_it_leads_to() -> None:
    assertion = "Assertion `index out of bounds: 0 <= tmp < 2048` failed."
    found = explain(
        [f"x.py:37: unknown: block: [9,0,0] {assertion}"],
        logged(Error("torch.AcceleratorError", "CUDA error: device-side assert triggered")),
    )
    assert kind(found) == "length"
    assert "2048" in (found.fix or "")


def test_errors_below_the_error_level_are_none() -> None:
    caught = WORKER.logged(ODD.traceback(), "a.py:1", "WARNING")
    assert explain(prologue(FORM), caught).status == LOADING


def test_a_server_that_loads_on_after_an_unknown_error_is_loading() -> None:
    going_on = WORKER.logged(["Loading drafter model..."], "a.py:1", "INFO")
    found = explain(prologue(FORM), logged(ODD), going_on)
    assert found.status == LOADING
    assert [other.message for other in found.also] == [ODD.message]
    assert explain(prologue(FORM), going_on, logged(ODD)).status == FAILED


def test_errors_of_requests_do_not_fail_a_server() -> None:
    bad = Error("ValueError", "The prompt is too long")
    asgi = ["ERROR:    Exception in ASGI application", *bad.traceback()]
    found = explain(healthy(FORM).lines(), logged(bad, API), API.raw(asgi))
    assert (found.status, found.cause) == (UP, None)


def test_a_server_that_dies_later_has_failed() -> None:
    fatal = ["EngineCore encountered a fatal error.", *OOM.traceback()]
    found = explain(healthy(FORM).lines(), ENGINE.logged(fatal, "core.py:1"))
    assert (found.status, kind(found)) == (FAILED, "runtime")


def test_a_server_that_was_stopped() -> None:
    down = API.raw(["INFO:     Shutting down", "INFO:     Application shutdown complete."])
    assert explain(healthy(FORM).lines(), down).status == STOPPED


def test_an_api_server_that_stops_because_its_engine_died_has_failed() -> None:
    fatal = ["EngineCore encountered a fatal error.", *OOM.traceback()]
    down = API.raw(["INFO:     Shutting down", "INFO:     Application shutdown complete."])
    found = explain(healthy(FORM).lines(), ENGINE.logged(fatal, "core.py:1"), down)
    assert (found.status, kind(found)) == (FAILED, "runtime")


def test_a_second_start_in_the_same_log() -> None:
    head = prologue(FORM)
    lines = worker_failure(FORM, INTERFACE).lines()
    failed = [*head, *(line for line in lines if line not in head)]
    again = [line.replace("APIServer pid=1)", "APIServer pid=2)") for line in failed]
    up = [line.replace("APIServer pid=1)", "APIServer pid=3)") for line in healthy(FORM).lines()]
    found = explain(failed, again)
    assert (found.status, found.starts, kind(found)) == (FAILED, 2, "interface")
    found = explain(failed, again, up)
    assert (found.status, found.starts, found.cause) == (UP, 3, None)
    assert [other.kind for other in found.also] == ["interface", "interface"]


def test_several_api_servers_are_one_start() -> None:
    first = prologue(FORM)
    second = [line.replace("(APIServer pid=1)", "(ApiServer_1 pid=2)") for line in first]
    found = explain(first, logged(ODD)[:0], second, healthy(FORM).lines()[2:])
    assert (found.starts, found.status) == (1, UP)
    assert found.facts.took is not None and found.facts.took.total_seconds() == 270


def test_many_starts_many_errors_many_processes_take_no_more_room() -> None:
    lines = []
    for i in range(3000):
        lines += [
            f"(APIServer pid={i}) INFO 01-01 00:00:00 [a.py:1] vLLM API server version 0.17.1"
        ]
        lines += [f"(Worker_TP0 pid={i}) ValueError: error number {chr(97 + i % 26) * (i % 50)}"]
        lines += [f"(Worker_TP0 pid={i}) plain"]
    found = explain(lines)
    assert found.starts == 3000
    assert len(found.also) <= 20
