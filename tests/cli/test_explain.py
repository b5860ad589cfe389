from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from command import KIMI, TOOL, call
from explain.cases import ARGUMENTS
from explain.logs import FORMS, Error, healthy, prologue, worker_failure
from wheels import tree

FORM = FORMS["0.11"]
INTERFACE = Error("RuntimeError", "Model does not support EAGLE3 interface")
FAILURE = worker_failure(FORM, INTERFACE).text()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "server.log"


def test_a_failure(log: Path) -> None:
    log.write_bytes(FAILURE)
    done = call("explain", str(log))
    assert (done.code, done.err) == (1, "")
    assert done.out.startswith("failed while loading the drafter: interface\n")
    assert "  fix   vllm-eagle3-patch apply --model moonshotai/Kimi-K2.5\n" in done.out


def test_the_same_as_json(log: Path) -> None:
    log.write_bytes(FAILURE)
    done = call("explain", "--json", str(log))
    answer = done.json
    assert (done.code, done.err) == (1, "")
    assert {"schema", "command", "exit", "vllm", "target", "cause", "also", "fix"} <= answer.keys()
    assert (answer["schema"], answer["command"], answer["exit"]) == (1, "explain", 1)
    assert answer["cause"]["class"] == answer["gate"] == "interface"
    assert answer["cause"].keys() == {"class", "process", "exception", "message", "log_line"}


def test_what_the_log_does_not_say_is_null(log: Path) -> None:
    log.write_text("ValueError: EAGLE3 with pipeline parallel is not supported.\n")
    answer = call("explain", "--json", str(log)).json
    assert (answer["vllm"], answer["target"], answer["gate"]) == (None, None, None)
    assert answer["cause"]["class"] == "pipeline-parallel"
    assert answer["fix"].startswith("--pipeline-parallel-size 1")


def test_a_healthy_server(log: Path) -> None:
    log.write_bytes(healthy(FORM).text())
    done = call("explain", str(log))
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("the server is up after 4 min 30 s\n")
    assert call("explain", "--quiet", str(log)).out == ""
    answer = call("explain", "--json", str(log)).json
    assert (answer["exit"], answer["cause"], answer["status"]) == (0, None, "up")
    assert answer["target"] == {"architecture": KIMI, "model_type": None}


def test_a_server_that_loads(log: Path) -> None:
    log.write_text("".join(f"{line}\n" for line in prologue(FORM)))
    done = call("explain", str(log))
    assert (done.code, done.out.splitlines()[0]) == (0, "still loading: just begun")


def test_the_fix_names_target_and_interpreter(log: Path) -> None:
    resolved = "INFO [a.py:1] Resolved architecture: {}\n"
    log.write_bytes(resolved.format(KIMI).encode() + FAILURE)
    assert call("explain", "--json", str(log)).json["fix"] == "vllm-eagle3-patch apply"
    log.write_bytes(resolved.format("DeepseekV3ForCausalLM").encode() + FAILURE)
    done = call("explain", "--json", "--python", "/opt/venv/bin/python", str(log))
    assert done.json["fix"] == (
        "vllm-eagle3-patch apply --model DeepseekV3ForCausalLM --python /opt/venv/bin/python"
    )


def test_the_drafter_is_told_from_the_target(log: Path) -> None:
    said = "OSError: {} does not appear to have a file named config.json. Checkout 'x'\n"
    for path, kind in (
        ("lightseekorg/kimi-k2.5-eagle3", "drafter-missing"),
        ("/data/Kimi-K2.5", "runtime"),
    ):
        log.write_text(f"{ARGUMENTS}\n{said.format(path)}")
        assert call("explain", "--json", str(log)).json["cause"]["class"] == kind


def test_standard_input() -> None:
    done = subprocess.run([*TOOL, "explain", "-"], input=FAILURE, capture_output=True)
    assert done.returncode == 1
    assert b"interface" in done.stdout


@pytest.mark.parametrize("words", [[], ["a.log", "--follow", "b.log"]])
def test_one_log_has_to_be_named(words: list[str]) -> None:
    done = call("explain", *words)
    assert (done.code, done.out) == (2, "")
    assert "name one log" in done.err


def test_no_such_log(log: Path) -> None:
    for path in (log, log.parent):
        done = call("explain", str(path))
        assert (done.code, done.out) == (2, "")
        assert str(path) in done.err


@pytest.mark.parametrize("text", ["", "some text\nof no server\n"])
def test_not_a_log_of_vllm(log: Path, text: str) -> None:
    log.write_text(text)
    done = call("explain", str(log))
    assert (done.code, done.out) == (3, "")
    answer = call("explain", "--json", str(log)).json
    assert (answer["exit"], answer["error"]["where"]) == (3, str(log))


def test_help_says_what_the_exit_code_means() -> None:
    done = subprocess.run([*TOOL, "explain", "--help"], capture_output=True, text=True)
    assert "Exit code 0: the server is up" in " ".join(done.stdout.split())


def resolved(architecture: str) -> bytes:
    return f"INFO [a.py:1] Resolved architecture: {architecture}\n".encode()


def looked(log: Path, *words: str) -> dict[str, object]:
    done = call("explain", "--json", *words, str(log))
    assert (done.code, done.err) == (1, "")
    return done.json


@pytest.mark.parametrize(
    ("version", "state", "word"),
    [
        ("0.17.1", "closed", "vllm-eagle3-patch apply --site-packages"),
        ("0.18.0", "native", "has this natively: start the server from there"),
    ],
)
def test_the_gate_is_looked_at_in_the_installation_named(
    log: Path, version: str, state: str, word: str
) -> None:
    log.write_bytes(resolved(KIMI) + FAILURE)
    where = str(tree(version))
    answer = looked(log, "--site-packages", where)
    assert answer["installed"]["state"] == state  # type: ignore[index]
    assert answer["installed"]["version"] == version  # type: ignore[index]
    assert word in str(answer["fix"])
    done = call("explain", "--site-packages", where, str(log))
    assert word in done.out


def test_a_gate_that_was_opened_since(log: Path, tmp_path: Path) -> None:
    copy = tmp_path / "site-packages"
    shutil.copytree(tree("0.17.1"), copy, symlinks=True)
    assert call("apply", "--site-packages", str(copy)).code == 0
    log.write_bytes(resolved(KIMI) + FAILURE)
    answer = looked(log, "--site-packages", str(copy))
    assert answer["installed"]["state"] == "open"  # type: ignore[index]
    assert "start the server from there again" in str(answer["fix"])
    assert "vllm-eagle3-patch apply" not in str(answer["fix"])


def test_a_log_of_another_version_is_said(log: Path) -> None:
    log.write_text("ValueError: EAGLE3 with pipeline parallel is not supported.\n")
    where = str(tree("0.18.0"))
    assert looked(log, "--site-packages", where)["notes"] == []
    banner = "(APIServer pid=1) INFO 10-06 18:54:30 [x.py:1] vLLM API server version 0.15.0\n"
    log.write_text(banner + log.read_text())
    assert looked(log, "--site-packages", where)["notes"] == [
        "the log is of vLLM 0.15.0, the installation named has 0.18.0"
    ]


def test_without_the_installation_named_the_log_is_explained_all_the_same(log: Path) -> None:
    log.write_bytes(resolved(KIMI) + FAILURE)
    for words in (["--python", "/nowhere/python"], ["--site-packages", "/nowhere"]):
        answer = looked(log, *words)
        assert answer["fix"] == " ".join(["vllm-eagle3-patch apply", *words])
        (note,) = answer["notes"]  # type: ignore[misc]
        assert "was not looked at" in note
    assert looked(log)["installed"] is None


def test_an_architecture_the_installation_has_not(log: Path) -> None:
    log.write_bytes(resolved("NoSuchForCausalLM") + FAILURE)
    *_, note = looked(log, "--site-packages", str(tree("0.18.0")))["notes"]  # type: ignore[misc]
    assert "its gates could not be looked at" in note
