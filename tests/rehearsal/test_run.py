"""The stages as the parent follows them: children here are scripts that say what a child says."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from vllm_eagle3_patches.rehearsal import run, stages
from vllm_eagle3_patches.rehearsal.run import NOT_RUN, PASSED, SKIPPED, Outcome, Result

# In place of the interpreter: `launcher.py PART REQUEST` is answered from a list of events.
STAND_IN = """#!{python}
import json, pathlib, sys, time
part, request = sys.argv[2], json.loads(pathlib.Path(sys.argv[3]).read_text())
folder = pathlib.Path(request["folder"])
if part == "checkpoint":
    made = request["made"]
    if made is None:
        sys.exit("ValueError: no such weights")
    (folder / "checkpoint.json").write_text(json.dumps(made))
    sys.exit(0)
while not (folder / "ready.json").exists():
    time.sleep(0.01)
for event in request["say"]:
    if event == "die":
        print("Traceback", flush=True)
        sys.exit(7)
    if event == "hang":
        time.sleep(600)
    with open(request["events"], "a") as file:
        file.write(json.dumps({{"time": 0, **event}}) + "\\n")
time.sleep(600)
"""
MADE = {"checkpoint": "whole", "class": "LlamaForCausalLM", "parameters": 1_000_000}
END = {"event": "end", "code": 0}


def passed(stage: str) -> dict[str, Any]:
    return {"event": "passed", "stage": stage, "detail": f"{stage} seen", "facts": {}}


def begin(stage: str) -> dict[str, Any]:
    return {"event": "begin", "stage": stage}


ALL = [passed(name) for name in stages.NAMES[1:]]


def outcome(
    tmp_path: Path, say: list[Any], made: dict[str, Any] | None = MADE
) -> tuple[Outcome, list[Result]]:
    python = tmp_path / "python"
    python.write_text(STAND_IN.format(python=sys.executable))
    python.chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    request = {"folder": str(place), "events": str(place / "events"), "say": say, "made": made}
    told: list[Result] = []
    return run.run(python, place, request, dict(os.environ), told.append), told


def states(found: Outcome) -> dict[str, str]:
    return {result.stage: result.state for result in found.results}


def test_all_stages_pass(tmp_path: Path) -> None:
    found, told = outcome(tmp_path, [*ALL, END])
    assert set(states(found).values()) == {PASSED}
    assert [result.stage for result in told] == list(stages.NAMES)
    assert found.results[0].detail == "LlamaForCausalLM, 1.0 M parameters"
    assert found.failed is None


def test_a_stage_is_not_passed_unless_it_is_said(tmp_path: Path) -> None:
    found, _ = outcome(tmp_path, [passed(stages.CONFIGS), END])
    assert states(found)[stages.TARGET] == NOT_RUN


def test_a_skipped_stage_and_one_that_is_left(tmp_path: Path) -> None:
    skipped = {"event": "skipped", "stage": stages.REFERENCE, "detail": "no class", "facts": {}}
    left = {"event": "left", "stage": stages.DRAFTS, "detail": "cannot"}
    found, told = outcome(tmp_path, [skipped, left, END])
    assert states(found)[stages.REFERENCE] == SKIPPED
    assert states(found)[stages.DRAFTS] == NOT_RUN
    assert [result.detail for result in told][1:] == ["no class", "cannot"]


def test_a_failure_belongs_to_the_stage_begun_last(tmp_path: Path) -> None:
    failed = {"event": "failed", "stage": None, "detail": "E: x", "facts": {"raised": True}}
    say = [passed(stages.CONFIGS), passed(stages.TARGET), begin(stages.DRAFTER), failed, END]
    found, _ = outcome(tmp_path, say)
    assert found.failed is not None
    assert (found.failed.stage, found.failed.detail) == (stages.DRAFTER, "E: x")
    assert states(found)[stages.SHARING] == NOT_RUN


def test_a_failure_between_stages_belongs_to_the_next(tmp_path: Path) -> None:
    failed = {"event": "failed", "stage": None, "detail": "E: x", "facts": {"raised": True}}
    found, _ = outcome(tmp_path, [begin(stages.CONFIGS), passed(stages.CONFIGS), failed, END])
    assert found.failed is not None
    assert found.failed.stage == stages.TARGET


def test_the_v2_runner_asks_for_the_interface_before_the_drafter(tmp_path: Path) -> None:
    failed = {"event": "failed", "stage": None, "detail": "no interface", "facts": {"raised": True}}
    say = [passed(stages.CONFIGS), passed(stages.TARGET), begin(stages.INTERFACE), failed, END]
    found, _ = outcome(tmp_path, say)
    assert found.failed is not None
    assert found.failed.stage == stages.INTERFACE
    assert states(found)[stages.DRAFTER] == NOT_RUN


def test_a_process_that_dies_fails_its_stage(tmp_path: Path) -> None:
    found, _ = outcome(tmp_path, [passed(stages.CONFIGS), begin(stages.PROFILE), "die"])
    assert found.failed is not None
    assert found.failed.stage == stages.PROFILE
    assert "exit code 7" in found.failed.detail
    assert b"Traceback" in found.log


def test_weights_that_cannot_be_made(tmp_path: Path) -> None:
    found, _ = outcome(tmp_path, [], made=None)
    assert found.failed is not None
    assert found.failed.stage == stages.TWINS
    assert "exit code 1: ValueError: no such weights" in found.failed.detail


def test_no_checkpoint_is_said(tmp_path: Path) -> None:
    found, _ = outcome(tmp_path, [END], made={"checkpoint": False, "why": "no class"})
    assert found.results[0].state == PASSED
    assert "no checkpoint: no class" in found.results[0].detail


def test_a_stage_has_a_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(run.LIMITS, stages.TARGET, 0.5)
    found, _ = outcome(tmp_path, [passed(stages.CONFIGS), begin(stages.TARGET), "hang"])
    assert found.failed is not None
    assert found.failed.stage == stages.TARGET
    assert "not done within" in found.failed.detail
    assert found.seconds < 30


def test_the_environment_keeps_vllm_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("HF_HOME", "/home/hf")
    made = run.environment(tmp_path, {"VLLM_MLA_DISABLE": "1"}, ["/overlay"])
    assert made["PYTHONPATH"] == f"/overlay{os.pathsep}/mine"
    assert made["VLLM_MLA_DISABLE"] == "1"
    for name in (
        "VLLM_CACHE_ROOT",
        "HF_HOME",
        "TORCHINDUCTOR_CACHE_DIR",
        "XDG_CACHE_HOME",
        "TMPDIR",
    ):
        assert Path(made[name]).is_relative_to(tmp_path), name
    assert json.loads(made["HF_HUB_OFFLINE"]) == 1
