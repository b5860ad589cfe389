"""The stages as the parent follows them: children here are scripts that say what a child says."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from command import lay

from vllm_eagle3_patches import installation
from vllm_eagle3_patches.errors import UsageError, WriteError
from vllm_eagle3_patches.rehearsal import diagnosis, run, stages
from vllm_eagle3_patches.rehearsal.inside import space
from vllm_eagle3_patches.rehearsal.run import NOT_RUN, PASSED, SKIPPED, Outcome, Result

# In place of the interpreter: `launcher.py PART REQUEST` is answered from a list of events.
STAND_IN = """#!{python}
import json, os, pathlib, sys, time
part, request = sys.argv[2], json.loads(pathlib.Path(sys.argv[3]).read_text())
folder = pathlib.Path(request["folder"])
if part == "checkpoint":
    made = request["made"]
    if made == "killed":
        os.kill(os.getpid(), 9)
    if made is None:
        sys.exit("ValueError: no such weights")
    (folder / "checkpoint.json").write_text(json.dumps(made))
    sys.exit(0)
if request["say"] == ["no import"]:
    time.sleep(1)  # the other child is long gone
    sys.exit("No module named torch")
with open(request["events"], "a") as file:
    file.write(json.dumps({{"event": "imported", "time": 0, "vllm": "0.32.0"}}) + "\\n")
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
    tmp_path: Path, say: list[Any], made: dict[str, Any] | str | None = MADE
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


def test_an_import_that_fails_in_both_children_is_the_engines(tmp_path: Path) -> None:
    """Whichever is the first to notice: the stage must not be a matter of luck."""
    found, _ = outcome(tmp_path, ["no import"], made=None)
    assert found.failed is not None
    assert found.failed.stage == stages.CONFIGS
    assert found.log == b"No module named torch\n"


def test_the_log_of_twins_that_fail_is_theirs(tmp_path: Path) -> None:
    found, _ = outcome(tmp_path, [], made=None)
    assert found.failed is not None
    assert found.log == b"ValueError: no such weights\n"
    assert "DIR/twins.txt" in str(diagnosis.of(found, found.failed).fix)


def test_a_child_that_was_killed_points_to_memory(tmp_path: Path) -> None:
    found, _ = outcome(tmp_path, [], made="killed")
    assert found.failed is not None
    assert "signal 9" in found.failed.detail
    assert "want of memory" in str(diagnosis.of(found, found.failed).fix)


def test_options_that_a_twin_cannot_honour_come_to_the_report(tmp_path: Path) -> None:
    found, _ = outcome(tmp_path, [{"event": "options", "left": ["quantization"]}, *ALL, END])
    assert found.facts["options_left_out"] == ["quantization"]


def test_a_failure_on_a_full_disk_is_no_fault_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "full", lambda _: True)
    with pytest.raises(WriteError, match="no space is left") as raised:
        outcome(tmp_path, [], made=None)
    assert "TMPDIR" in str(raised.value.next)


def test_a_failure_that_speaks_of_space_is_one_of_space(tmp_path: Path) -> None:
    """Where the last file was too large for a disk that is not quite full."""
    detail = "SafetensorError: I/O error: No space left on device (os error 28)"
    said = {"event": "failed", "stage": None, "facts": {}, "detail": detail}
    with pytest.raises(WriteError, match="no space is left"):
        outcome(tmp_path, [said])


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
    """From this process's variables, and from those in front of the user's command."""
    monkeypatch.setenv("PYTHONPATH", "/mine")
    monkeypatch.setenv("HF_HOME", "/home/hf")
    users = {
        "VLLM_CACHE_ROOT": "/data", "TMPDIR": "/data", "HF_HUB_OFFLINE": "0", "PYTHONHOME": "/usr",
        "PYTHONDONTWRITEBYTECODE": "", "VLLM_TORCH_PROFILER_DIR": "/data", "VLLM_USE_V1": "1",
        "OMP_NUM_THREADS": "64",
    }  # fmt: skip
    made = run.environment(tmp_path, users, {"OMP_NUM_THREADS": "1"}, ["/overlay"])
    assert made["PYTHONPATH"] == f"/overlay{os.pathsep}/mine"
    assert made["VLLM_USE_V1"] == "1"
    assert made["OMP_NUM_THREADS"] == "1"
    for name in ("VLLM_CACHE_ROOT", "HF_HOME", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME",
                 "TMPDIR"):  # fmt: skip
        assert Path(made[name]).is_relative_to(tmp_path), name
    assert len(made["VLLM_RPC_BASE_PATH"]) + 40 < 107, "a socket's path may not be longer"
    assert (tmp_path / made["VLLM_RPC_BASE_PATH"]).is_dir()
    assert made["HF_HUB_OFFLINE"] == made["PYTHONDONTWRITEBYTECODE"] == "1"
    assert not {"PYTHONHOME", "VLLM_TORCH_PROFILER_DIR"} & made.keys()


@pytest.mark.parametrize("keep", [False, True])
def test_no_space_says_where_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: bool
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(space, "full", lambda _: True)
    kept = tmp_path / "kept" if keep else None
    with pytest.raises(WriteError, match="no space") as raised, run.folder(kept):
        raise OSError(errno.ENOSPC, "No space left on device", "some file")
    assert raised.value.where == str(kept or tmp_path)
    assert (kept is not None and kept.is_dir()) or not list(tmp_path.iterdir())


def test_a_temporary_folder_that_cannot_be_used_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path / "missing"))
    with pytest.raises(WriteError, match="TMPDIR cannot be written"), run.folder(None):
        pass


def test_a_detail_is_one_line_that_does_not_speak_to_the_terminal(tmp_path: Path) -> None:
    said = {**passed(stages.CONFIGS), "detail": "model_type a\x1b[31mb\nc"}
    found, _ = outcome(tmp_path, [said, END])
    assert found.results[1].detail == "model_type a?[31mb c"


def test_more_processes_than_the_machine_has_are_refused(tmp_path: Path) -> None:
    found = installation.find(python=None, site_packages=str(lay(tmp_path / "site")))
    run.can_be_parallel(found, 1)
    with pytest.raises(UsageError, match="1000000, and this machine has"):
        run.can_be_parallel(found, 1_000_000)
