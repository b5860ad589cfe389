"""`check` with a drafter, as a user runs it; it only reads, so the shared trees serve."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from wheels import tree

from preflight.folders import write_model
from preflight.published import KIMI_K25, KIMI_MHA, KIMI_MLA, LLAMA31_8B, tensors, with_settings
from vllm_eagle3_patches.cli.main import main
from vllm_eagle3_patches.preflight import CLASSES

SPECULATIVE = '{"method": "eagle3", "model": "%s", "num_speculative_tokens": 3}'


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(write_model(tmp_path / "model", KIMI_K25))


@pytest.fixture
def mla(tmp_path: Path) -> str:
    return str(write_model(tmp_path / "mla", KIMI_MLA, tensors(KIMI_MLA, KIMI_K25)))


@pytest.fixture
def mha(tmp_path: Path) -> str:
    return str(write_model(tmp_path / "mha", KIMI_MHA, tensors(KIMI_MHA, KIMI_K25)))


def check(version: str, *words: str) -> int:
    return main(["check", "--site-packages", str(tree(version)), *words])


def answer(
    capsys: pytest.CaptureFixture[str], version: str, *words: str
) -> tuple[int, dict[str, Any]]:
    code = check(version, "--json", *words)
    facts = json.loads(capsys.readouterr().out)
    assert facts["exit"] == code
    return code, facts


def test_fitting(capsys: pytest.CaptureFixture[str], model: str, mla: str) -> None:
    code, facts = answer(capsys, "0.18.0", "--model", model, "--drafter", mla)
    assert (code, facts["findings"]) == (0, [])
    assert [gate["state"] for gate in facts["gates"]] == ["native"] * 6


def test_default_target_is_kimi(capsys: pytest.CaptureFixture[str], mla: str) -> None:
    code, facts = answer(capsys, "0.18.0", "--drafter", mla)
    assert (code, facts["findings"]) == (0, [])
    assert facts["target"]["architecture"] == "KimiK25ForConditionalGeneration"


def test_warnings_alone_leave_the_code_to_the_gates(
    capsys: pytest.CaptureFixture[str], model: str, mla: str
) -> None:
    words = ("--model", model, "--drafter", mla, "--serve-args", "--dtype half")
    for version, wanted in (("0.18.0", 0), ("0.17.1", 1)):
        code, facts = answer(capsys, version, *words)
        assert code == wanted
        assert any(f["class"] == "aux-capture" for f in facts["findings"])


@pytest.mark.parametrize("version", ["0.18.0", "0.17.1"])
def test_error(capsys: pytest.CaptureFixture[str], version: str, model: str, mha: str) -> None:
    words = ("--model", model, "--drafter", mha, "--serve-args", "-pp 2")
    code, facts = answer(capsys, version, *words)
    assert code == 1
    (found,) = [f for f in facts["findings"] if f["class"] == "pipeline-parallel"]
    assert found["severity"] == "error" and found["detail"] and found["fix"]
    assert all(f["class"] in CLASSES for f in facts["findings"])


def test_command_line(capsys: pytest.CaptureFixture[str], model: str, mla: str) -> None:
    command = ["vllm", "serve", model, "-tp", "8", "--speculative-config", SPECULATIVE % mla]
    code, facts = answer(capsys, "0.18.0", "--", *command)
    assert (code, facts["findings"]) == (0, [])
    wrong = [word.replace("num_spec", "num_spek") for word in command]
    code, facts = answer(capsys, "0.18.0", "--", *wrong, "--kv-cache-dtype", "fp8")
    assert code == 1
    assert {f["class"] for f in facts["findings"]} == {"argument"}


def test_findings_for_a_person(capsys: pytest.CaptureFixture[str], model: str, mha: str) -> None:
    assert check("0.18.0", "--model", model, "--drafter", mha, "--serve-args", "-pp 2") == 1
    text = capsys.readouterr().out
    assert "  error    pipeline-parallel\n" in text
    assert "fix: serve with tensor parallelism alone" in text
    assert text.rstrip().splitlines()[-1].startswith("drafter: 1 error, ")
    assert "\x1b" not in text
    assert check("0.18.0", "--quiet", "--drafter", mha, "--serve-args", "-pp 2") == 1
    assert capsys.readouterr().out == ""


def test_target_the_gates_do_not_know(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mha: str
) -> None:
    """The findings are told all the same; the gates decide the code."""
    config = with_settings(LLAMA31_8B, architectures=["OuroForCausalLM"], model_type="ouro")
    model = str(write_model(tmp_path / "ouro", config))
    code, facts = answer(capsys, "0.18.0", "--model", model, "--drafter", mha)
    assert code == 3
    assert any(f["class"] == "aux-shape" for f in facts["findings"])


@pytest.mark.parametrize(
    "words",
    [
        ["--drafter", "org/not-in-the-cache"],
        ["--drafter", "/nowhere"],
        ["--serve-args", "-tp 8"],
        ["--serve-args", "'"],
        ["--drafter", ""],
        ["--drafter", " ", "--serve-args", "-tp 8"],
        ["--", "vllm", "serve", "Llama"],
        ["--", "ls"],
    ],
)
def test_usage(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    words: Sequence[str],
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    assert check("0.18.0", *words) == 2
    assert "error: " in capsys.readouterr().err


def test_nothing_is_imported_and_nothing_written(model: str, mla: str) -> None:
    program = (
        "import sys\n"
        "from vllm_eagle3_patches.cli.main import main\n"
        f"code = main(['check', '--site-packages', {str(tree('0.18.0'))!r}, '--model', {model!r},"
        f" '--drafter', {mla!r}, '--quiet'])\n"
        "heavy = {'vllm', 'torch', 'transformers', 'safetensors', 'libcst'} & set(sys.modules)\n"
        "sys.exit(code or ', '.join(heavy) or 0)\n"
    )
    before = {p: p.stat().st_mtime_ns for p in Path(model).parent.rglob("*")}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {p: p.stat().st_mtime_ns for p in Path(model).parent.rglob("*")} == before


def test_plain_check_does_without_preflight() -> None:
    program = (
        "import sys\n"
        "from vllm_eagle3_patches.cli.main import main\n"
        f"main(['check', '--site-packages', {str(tree('0.18.0'))!r}, '--quiet'])\n"
        "sys.exit('vllm_eagle3_patches.preflight' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert check("0.18.0", *words) == 2
    return " ".join(capsys.readouterr().err.split())


def test_nothing_is_said_to_fit_whose_sizes_are_not_known(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, mha: str
) -> None:
    bare = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3"}
    folder = str(write_model(tmp_path / "bare", bare))
    for model, word in (
        ("DeepseekV3ForCausalLM", "is a name without a config.json; give --model a folder"),
        (folder, "hidden_size, num_hidden_layers, vocab_size: its config.json does not give them"),
    ):
        words = ("--model", model, "--drafter", mha)
        assert check("0.18.0", *words) == 0
        text = capsys.readouterr().out
        assert "fits" not in text and "not everything was compared" in text and word in text
        _, facts = answer(capsys, "0.18.0", *words)
        (unseen,) = facts["not_compared"]
        assert word in unseen


def test_weights_that_are_not_read_are_not_said_to_fit(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, model: str
) -> None:
    folder = write_model(tmp_path / "bin", KIMI_MLA)
    (folder / "pytorch_model.bin").write_bytes(b"PK")
    check("0.18.0", "--model", model, "--drafter", str(folder))
    text = capsys.readouterr().out
    assert "fits" not in text and "pytorch_model.bin is no safetensors file" in text


def test_everything_known_fits(capsys: pytest.CaptureFixture[str], model: str, mla: str) -> None:
    assert check("0.18.0", "--model", model, "--drafter", mla) == 0
    assert capsys.readouterr().out.rstrip().endswith("the drafter fits: nothing found")


@pytest.mark.parametrize(
    ("option", "word"),
    [
        (["--speculative-config", "{method: eagle3}"], "is not a JSON object: Expecting property"),
        (["--speculative-confg", "{}"], "did you mean --speculative-config?"),
        (["-sc", "{}"], "write --speculative-config"),
        (["--speculative-config", '{"method": "eagle3"}'], "has no `model`, only method"),
        (["--speculative-config", '{"model": ""}'], "names no drafter"),
        (["--speculative-config", '{"model": 3}'], "names no drafter"),
        (["--config", "/nowhere.yaml"], "/nowhere.yaml cannot be read"),
    ],
)
def test_why_no_drafter_was_found(
    capsys: pytest.CaptureFixture[str], model: str, option: list[str], word: str
) -> None:
    assert word in said(capsys, "--", "vllm", "serve", model, *option)


def test_an_empty_drafter_is_called_empty(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--drafter is empty next: --drafter D, or --speculative-config" in said(
        capsys, "--drafter", ""
    )


@pytest.mark.parametrize(
    ("words", "typed"),
    [
        ("check vllm serve m -tp 8", "check -- vllm serve m -tp 8"),
        ("check --json A=1 vllm serve m -tp 8", "check --json -- A=1 vllm serve m -tp 8"),
        (
            "check --python /x/python vllm serve m -tp 8",
            "check --python /x/python -- vllm serve m -tp 8",
        ),
        (
            "check python3 -m vllm.entrypoints.openai.api_server --model m",
            "check -- python3 -m vllm.entrypoints.openai.api_server --model m",
        ),
    ],
)
def test_a_command_without_the_dashes_before_it(
    capsys: pytest.CaptureFixture[str], words: str, typed: str
) -> None:
    assert main(words.split()) == 2
    assert f"next:  vllm-eagle3-patch {typed}\n" in capsys.readouterr().err


def test_faults_of_the_command_line_stand_beside_the_others(
    capsys: pytest.CaptureFixture[str], model: str, mha: str
) -> None:
    args = "-tp abc --frobnicate -pp 2"
    code, facts = answer(capsys, "0.18.0", "--model", model, "--drafter", mha, "--serve-args", args)
    assert code == 1
    errors = [f["class"] for f in facts["findings"] if f["severity"] == "error"]
    assert errors == ["argument", "argument", "pipeline-parallel"]
