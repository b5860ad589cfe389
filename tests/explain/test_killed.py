"""A server that the kernel or an operator killed leaves no error of its own."""

from __future__ import annotations

import pytest

from explain.logs import FORMS, OUTER, Error, healthy, prologue, shards, worker_failure
from explain.reading import read
from vllm_eagle3_patches.explain.report import FAILED, LOADING, UP

FORM = FORMS["0.11"]
LOADING_LOG = "".join(f"{line}\n" for line in [*prologue(FORM), *shards(12), *shards(50)]).encode()
KILLED = [
    "Killed",
    "9 Killed",
    "Killed: 9",
    "bash: line 1: 4186 Killed                  vllm serve org/model -tp 8",
    "/opt/run.sh: line 12:     9 Killed                  python3 -m vllm.entrypoints.x",
    "[1]+  Killed                  vllm serve org/model",
    "zsh: killed     vllm serve org/model",
    "make: *** [Makefile:3: serve] Killed",
    "vllm.service: Main process exited, code=killed, status=9/KILL",
    "vllm.service: A process of this unit has been killed by the OOM killer.",
    "vllm-1 exited with code 137",
    "  Reason:       OOMKilled",
    "Memory cgroup out of memory: Killed process 77 (VLLM::Worker_TP) total-vm:1kB",
    "Out of memory: Killed process 77 (python3) total-vm:1kB",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0. Some of the step",
    "subprocess.CalledProcessError: Command '['vllm']' died with <Signals.SIGKILL: 9>.",
]


@pytest.mark.parametrize("line", KILLED)
def test_a_killed_server_has_failed_for_want_of_memory(line: str) -> None:
    found = read(LOADING_LOG + line.encode() + b"\n")
    assert found.status == FAILED
    assert found.cause is not None and found.cause.kind == "runtime"
    assert "not ours" in (found.what or "") and "memory" in (found.fix or "").lower()
    assert found.gate is None and not found.apply


@pytest.mark.parametrize("line", KILLED[:5])
@pytest.mark.parametrize("outer", sorted(OUTER))
def test_behind_the_prefix_of_another_program(line: str, outer: str) -> None:
    log = OUTER[outer](line)  # type: ignore[operator]
    found = read(LOADING_LOG + log.encode() + b"\n")
    assert found.status == FAILED and found.cause is not None and found.cause.kind == "runtime"


def test_killed_after_it_had_come_up() -> None:
    found = read(healthy(FORM).text() + b"Killed\n")
    assert found.status == FAILED and found.cause is not None and found.cause.kind == "runtime"


def test_an_error_before_the_kill_is_the_cause() -> None:
    failure = worker_failure(FORM, Error("RuntimeError", "Model does not support EAGLE3 interface"))
    found = read(failure.text() + b"Killed\n")
    assert found.cause is not None and found.cause.kind == "interface"
    unknown = worker_failure(FORM, Error("RuntimeError", "of a kind nobody knows"))
    found = read(unknown.text() + b"Killed\n")
    assert found.cause is not None and found.cause.kind == "unknown"


@pytest.mark.parametrize(
    "line",
    [
        "Killed by a word in a prompt",
        "INFO 10-06 18:54:30 [x.py:1] Killed",
        "the process Killed itself",
        "was killed",
        "Killedness",
    ],
)
def test_other_lines_with_the_word_say_nothing(line: str) -> None:
    assert read(LOADING_LOG + line.encode() + b"\n").status == LOADING
    assert read(healthy(FORM).text() + line.encode() + b"\n").status == UP
