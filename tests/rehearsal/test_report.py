"""What is said at the end: no more than was seen, and what was not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from explain.cases import ARGUMENTS

from rehearsal import models
from vllm_eagle3_patches.preflight.findings import error, warning
from vllm_eagle3_patches.rehearsal import diagnosis, drafter, report, rules, stages
from vllm_eagle3_patches.rehearsal.memory import Estimate
from vllm_eagle3_patches.rehearsal.prepare import Pair
from vllm_eagle3_patches.rehearsal.report import Rehearsal
from vllm_eagle3_patches.rehearsal.run import FAILED, NOT_RUN, PASSED, SKIPPED, Outcome, Result

INTERFACE = (
    "Traceback (most recent call last):\n"
    '  File "/x/vllm/v1/worker/gpu_model_runner.py", line 5234, in '
    "_setup_eagle3_aux_hidden_state_outputs\n"
    "    raise RuntimeError(\n"
    "RuntimeError: Model does not support EAGLE3 interface but aux_hidden_state_outputs was "
    "requested\n"
)


def results(**states: str) -> list[Result]:
    """All passed but those named; a name has `_` for a space."""
    other = {name.replace("_", " "): state for name, state in states.items()}
    return [Result(name, other.get(name, PASSED), 1.0, name) for name in stages.NAMES]


def rehearsal(
    target: dict[str, Any], found: list[Result], *, device: str = "cpu", **options: str
) -> Rehearsal:
    twin = rules.target(target)
    small = drafter.drafter(models.llama_drafter(target), twin, None)
    pair = Pair(Path("/models/target"), target, twin, small, 1)
    outcome = Outcome(found, seconds=42.4, peak=3 * 2**29, facts={"device": device})
    estimate = Estimate(None, 2**30, 2**20, 8)
    return Rehearsal(pair, outcome, None, estimate, (), options, ())


def test_passed() -> None:
    found = rehearsal(models.LLAMA31_8B, results())
    assert found.exit == 0
    said = report.verdict(found)
    assert said == "EAGLE-3 starts, drafts and verifies on the twin (in 42 s, 1.5 GiB at most)"


def test_failed() -> None:
    found = rehearsal(models.LLAMA31_8B, results(interface=FAILED, drafts=NOT_RUN))
    assert found.exit == 1
    assert "it ends at 'interface'" in report.verdict(found)


def test_not_all_run_is_no_success() -> None:
    found = rehearsal(models.LLAMA31_8B, results(drafts=NOT_RUN))
    assert found.exit == 3
    assert "not run: drafts" in report.verdict(found)


def test_what_was_skipped_is_said_with_the_success() -> None:
    found = rehearsal(models.LLAMA31_8B, results(**{stages.REFERENCE: SKIPPED}))
    assert found.exit == 0
    assert "but not seen: aux = reference" in report.verdict(found)


def test_an_error_of_the_real_pair_is_no_success() -> None:
    passed = rehearsal(models.LLAMA31_8B, results())
    found = replace(passed, findings=(error("argument", "--x is refused", "drop it"),))
    assert found.exit == 1
    assert "the real pair will not start: 1 error" in report.verdict(found)
    assert any("fix: drop it" in text for text in report.lines(found))


def test_a_drafter_without_files_is_no_fault_and_one_with_broken_files_is() -> None:
    passed = rehearsal(models.LLAMA31_8B, results())
    found = replace(passed, findings=(error("drafter-missing", "no file", "fetch it"),))
    assert replace(found, bare=True).exit == 0
    assert found.exit == 1


def test_what_check_warns_of_is_no_failure() -> None:
    passed = rehearsal(models.LLAMA31_8B, results())
    assert replace(passed, findings=(warning("length", "short", "none"),)).exit == 0


def test_options_that_were_left_out_are_named() -> None:
    found = rehearsal(models.LLAMA31_8B, results())
    found.outcome.facts["options_left_out"] = ["quantization", "max_model_len"]
    assert any("quantization, max_model_len" in text for text in report.not_covered(found))


def test_what_a_cpu_does_not_cover() -> None:
    said = " ".join(report.not_covered(rehearsal(models.KIMI_K25, results())))
    for part in ("trained drafter", "compressed-tensors", "images", "GPU kernels", "MLA: off",
                 "auto_map", "its files are not at hand"):  # fmt: skip
        assert part in said


def test_what_a_gpu_does_not_cover() -> None:
    options = {"tensor-parallel-size": "8", "pipeline-parallel-size": "2"}
    said = " ".join(
        report.not_covered(rehearsal(models.KIMI_K25, results(), device="NVIDIA H200", **options))
    )
    assert "tensor parallelism over 8: rehearsed over 1" in said
    assert "--pipeline-parallel-size 2" in said
    assert "MLA" not in said
    assert "GPU kernels" not in said


def test_json_has_every_stage_and_the_usual_keys() -> None:
    found = report.as_json(rehearsal(models.LLAMA31_8B, results()))
    assert [stage["stage"] for stage in found["stages"]] == list(stages.NAMES)
    assert found["cause"] is None
    assert found["memory"]["drafter_bytes"] == 2**30


def test_sizes_beside_the_real_ones() -> None:
    pair = rehearsal(models.KIMI_K25, results()).pair
    assert report.sizes(pair) == (
        "layers 7 of 61, hidden size 256 of 7168, heads 4 of 64, experts 16 of 384"
    )


def failed(stage: str, **facts: bool) -> Result:
    return Result(stage, FAILED, 1.0, "RuntimeError: x", facts=dict(facts))


def test_an_exception_is_read_as_explain_reads_it() -> None:
    log = f"{ARGUMENTS}\n{INTERFACE}".encode()
    found = diagnosis.of(Outcome([], log), failed(stages.INTERFACE, raised=True))
    assert (found.kind, found.gate, found.apply) == ("interface", "interface", True)
    assert found.as_json()["cause"]["class"] == "interface"


def test_an_interpreter_that_does_not_get_as_far_as_vllm() -> None:
    log = b"Traceback (most recent call last):\nModuleNotFoundError: No module named 'torch'\n"
    found = diagnosis.of(Outcome([], log), failed(stages.CONFIGS, raised=True))
    assert found.fix is not None and "--python EXE" in found.fix


def test_what_the_log_says_stands_beside_what_the_stage_says() -> None:
    whole = rehearsal(models.LLAMA31_8B, results(interface=FAILED))
    result = replace(failed(stages.INTERFACE), detail="an error")
    log = f"{ARGUMENTS}\n{INTERFACE}".encode()
    found = replace(whole, diagnosis=diagnosis.of(Outcome([], log), result))
    assert any("said  Model does not support EAGLE3" in text for text in report.lines(found))


@pytest.mark.parametrize("stage", [stages.ENTRY, stages.REFERENCE])
def test_wrong_states_are_a_matter_of_the_capture(stage: str) -> None:
    """Whatever else stands in the log."""
    found = diagnosis.of(Outcome([], INTERFACE.encode()), failed(stage, shown=True))
    assert found.kind == "aux-capture"
    assert found.fix is not None and "do not serve with it" in found.fix
    assert found.as_json()["cause"]["message"] == "RuntimeError: x"


def test_a_log_that_says_nothing() -> None:
    found = diagnosis.of(Outcome([], b"nothing\n"), failed(stages.TARGET))
    assert found.kind == "runtime"
    assert found.fix is not None and "--keep" in found.fix
