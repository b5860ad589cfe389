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
