"""`rehearse` as a command: what it takes, what it leaves behind. The engine is in tests/engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
import wheels
from command import TOOL, call, lay, unchanged
from preflight import published
from preflight.folders import write_model
from rehearsal import models


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return lay(tmp_path / "site")


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    target = write_model(tmp_path / "target", models.LLAMA31_8B)
    drafter = write_model(
        tmp_path / "drafter",
        published.LLAMA31_YUHUILI,
        published.tensors(published.LLAMA31_YUHUILI, models.LLAMA31_8B),
    )
    return [str(target), "--drafter", str(drafter)]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


def test_no_target(site: Path, pair: list[str]) -> None:
    done = call("rehearse", *pair[1:], site=site)
    assert done.code == 2
    assert "needs the target's config.json" in done.err


def test_no_drafter(site: Path, pair: list[str]) -> None:
    done = call("rehearse", pair[0], site=site)
    assert done.code == 2
    assert "no drafter is named" in done.err


def test_a_command_that_serves_nothing(site: Path) -> None:
    done = call("rehearse", "--", "vllm", "bench", "x", site=site)
    assert done.code == 2
    assert "not a vllm serve command" in done.err


def test_a_config_without_sizes_is_refused(site: Path, pair: list[str], tmp_path: Path) -> None:
    bare = write_model(tmp_path / "bare", {"architectures": ["LlamaForCausalLM"]})
    done = call("rehearse", str(bare), *pair[1:], site=site)
    assert done.code == 3
    assert "how many layers" in done.err


@pytest.mark.parametrize(
    ("whose", "changed", "said"),
    [
        ("target", {"vocab_size": 10**15}, "`vocab_size` is 1000000000000000; it has to be"),
        ("target", {"num_attention_heads": 10**9}, "`num_attention_heads` is 1000000000;"),
        ("target", {"text_config": [1]}, "`text_config` is [1]; it has to be an object"),
        ("drafter", {"architectures": "LlamaForCausalLM"}, '`architectures` is "LlamaForCausalLM"'),
        ("drafter", {"eagle_aux_hidden_state_layer_ids": [*range(10**5)]}, "has 100000 values"),
    ],
)
def test_an_odd_config_is_refused_by_the_field_and_the_file(
    site: Path, pair: list[str], tmp_path: Path, whose: str, changed: dict[str, object], said: str
) -> None:
    path = tmp_path / whose / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    done = call("rehearse", *pair, site=site)
    assert done.code == 3
    assert said in done.err
    assert f"where: {path}" in done.err
    assert "next: " in done.err


def test_a_folder_to_keep_them_in_must_be_empty(
    site: Path, pair: list[str], tmp_path: Path
) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "mine").write_text("mine")
    done = call("rehearse", *pair, "--keep", str(tmp_path / "kept"), site=site)
    assert done.code == 2
    assert "not empty" in done.err
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["mine"]


def test_an_interpreter_without_torch(site: Path, pair: list[str], temporary: Path) -> None:
    """The test environment's own: it says what is missing, and nothing is left."""
    with unchanged(site):
        done = call("rehearse", *pair, "--json", site=site)
    answer = json.loads(done.out)
    assert (done.code, answer["exit"]) == (1, 1)
    (failed,) = (stage for stage in answer["stages"] if stage["state"] == "failed")
    assert failed["stage"] == "configs"
    assert "No module named" in failed["detail"]
    assert "passed" not in {stage["state"] for stage in answer["stages"]}
    assert answer["twin"]["target"]["num_hidden_layers"] == 7
    assert answer["memory"]["drafter_bytes"] > 0
    assert list(temporary.iterdir()) == []


def test_what_is_kept(site: Path, pair: list[str], tmp_path: Path) -> None:
    call("rehearse", *pair, "--keep", str(tmp_path / "kept"), site=site)
    twin = json.loads((tmp_path / "kept" / "target" / "config.json").read_text())
    assert twin["num_hidden_layers"] == 7
    assert (tmp_path / "kept" / "log.txt").exists()


def test_the_users_own_command(site: Path, pair: list[str], tmp_path: Path) -> None:
    speculative = {"method": "eagle3", "model": pair[2], "num_speculative_tokens": 5}
    words = ["vllm", "serve", pair[0], "--speculative-config", json.dumps(speculative),
             "--max-num-seqs", "64", "-tp", "8"]  # fmt: skip
    kept = tmp_path / "kept"
    call("rehearse", "--site-packages", str(site), "--keep", str(kept), "--", *words)
    request = json.loads((kept / "request.json").read_text())
    assert request["speculative"] == speculative | {"model": str(kept / "drafter")}
    assert request["words"] == words[1:]
    assert request["started_in"] == str(Path.cwd())
    assert request["parallel"] == 1


def test_an_error_that_check_finds_is_one_here(pair: list[str]) -> None:
    """A twin passes where the real pair does not start: the options are not all a twin's."""
    words = ["--serve-args", "--max-model-len abc --no-such-option", "--json"]
    answer = json.loads(call("rehearse", *pair, *words, site=wheels.tree("0.32.0")).out)
    said = [f["detail"] for f in answer["findings"] if f["severity"] == "error"]
    assert any("--max-model-len" in text for text in said)
    assert any("--no-such-option" in text for text in said)


def test_what_check_could_not_compare_is_said(site: Path, pair: list[str]) -> None:
    (Path(pair[2]) / "model.safetensors").unlink()
    (Path(pair[2]) / "pytorch_model.bin").write_bytes(b"x")
    answer = json.loads(call("rehearse", *pair, "--json", site=site).out)
    assert any("no safetensors file" in text for text in answer["not_compared"])


def test_a_model_is_not_its_own_drafter(site: Path, pair: list[str]) -> None:
    done = call("rehearse", pair[0], "--drafter", f"{pair[0]}/", site=site)
    assert done.code == 2
    assert "its own drafter" in done.err


@pytest.mark.parametrize("size", ["0", "-1", "1000000000", "two"])
def test_a_size_that_no_machine_has(site: Path, pair: list[str], size: str) -> None:
    done = call("rehearse", *pair, f"--tensor-parallel-size={size}", site=site)
    assert done.code == 2
    assert "--tensor-parallel-size" in done.err


def test_folders_that_cannot_hold_twins(site: Path, pair: list[str], tmp_path: Path) -> None:
    """Judged before anything is made."""
    (tmp_path / "file").write_text("")
    for name, said in (
        ("", "--keep is empty"),
        (str(tmp_path / "file"), "no folder"),
        (str(tmp_path / "file" / "below"), "cannot be written"),
    ):
        done = call("rehearse", *pair, "--keep", name, site=site)
        assert done.code == (6 if "written" in said else 2)
        assert said in done.err


@pytest.mark.parametrize("name", ["x" * 300, "~nobody-of-this-name/x"])
def test_names_that_no_file_can_have(site: Path, pair: list[str], name: str) -> None:
    for words in ([name, *pair[1:]], [pair[0], "--drafter", name]):
        done = call("rehearse", *words, site=site)
        assert done.code == 2
        assert "Traceback" not in done.err


def test_architectures_that_are_no_list(site: Path, pair: list[str], tmp_path: Path) -> None:
    odd = write_model(tmp_path / "odd", models.LLAMA31_8B | {"architectures": "LlamaForCausalLM"})
    done = call("rehearse", str(odd), *pair[1:], site=site)
    assert done.code == 3
    assert '`architectures` is "LlamaForCausalLM"; it has to be a list' in done.err


def test_a_command_without_its_dashes(site: Path, pair: list[str]) -> None:
    done = call("rehearse", "vllm", "serve", pair[0], "--speculative-config", "{}", site=None)
    assert done.code == 2
    assert "vllm-eagle3-patch rehearse -- vllm serve" in done.err


@pytest.mark.parametrize("which", ["target", "drafter"])
def test_a_config_that_is_a_pipe_is_not_waited_for(site: Path, pair: list[str], which: str) -> None:
    path = Path(pair[0 if which == "target" else 2]) / "config.json"
    path.unlink()
    os.mkfifo(path)
    done = call("rehearse", *pair, site=site)
    assert done.code == 2
    assert "is not a file" in done.err


def test_a_reader_that_goes_away_is_no_success(site: Path, pair: list[str]) -> None:
    words = [*TOOL, "rehearse", *pair, "--site-packages", str(site)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, said = process.communicate(timeout=60)
    assert process.returncode == 6
    assert b"nobody reads" in said
    assert b"Traceback" not in said


def test_a_config_that_does_not_name_the_architecture(
    site: Path, pair: list[str], tmp_path: Path
) -> None:
    config = {k: v for k, v in models.LLAMA31_8B.items() if k != "architectures"}
    bare = write_model(tmp_path / "bare", config)
    done = call("rehearse", str(bare), *pair[1:], site=site)
    assert done.code == 2
    assert "--model" not in done.err


def test_two_models_are_no_command(site: Path, pair: list[str]) -> None:
    done = call("rehearse", pair[0], *pair, site=site)
    assert done.code == 2
    assert "vllm-eagle3-patch check" not in done.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_however_it_ends(
    site: Path, pair: list[str], temporary: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """While the children are at work: here, in an import that takes long."""
    slow = tmp_path / "slow" / "torch"
    slow.mkdir(parents=True)
    for package in (slow, site / "vllm"):
        (package / "__init__.py").write_text("import time\ntime.sleep(600)\n")
    env = os.environ | {
        "TMPDIR": str(temporary),
        "PYTHONPATH": os.pathsep.join([str(slow.parent), os.environ.get("PYTHONPATH", "")]),
    }
    words = [*TOOL, "rehearse", *pair, "--json", "--site-packages", str(site)]
    running = subprocess.Popen(
        words,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # a shell's background job, which these tests may be, ignores it, and so would its child
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )

    def children() -> list[str]:
        found = subprocess.run(["pgrep", "-f", str(temporary)], capture_output=True, text=True)
        return found.stdout.split()

    try:
        end = time.monotonic() + 30
        while len(children()) < 2:
            assert time.monotonic() < end, "the children did not start"
            time.sleep(0.05)
        time.sleep(0.5)  # they are in their import
        running.send_signal(number)
        answer, said = running.communicate(timeout=20)
    finally:
        running.kill()
    assert running.returncode == (-9 if number == signal.SIGKILL else 130)
    assert b"Traceback" not in said
    if number != signal.SIGKILL:
        assert json.loads(answer)["exit"] == 130
    end = time.monotonic() + 20
    while children() or list(temporary.iterdir()):
        assert time.monotonic() < end, (children(), list(temporary.iterdir()))
        time.sleep(0.05)
