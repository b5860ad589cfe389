from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import TOOL, VERSION, another_build, call, lay, run, unchanged
from wheels import tree

from vllm_eagle3_patches import __version__, operations
from vllm_eagle3_patches.cli import main as cli

COMMANDS = ["check", "apply", "revert", "diff"]
PATCHES = Path(__file__).parents[2] / "patches"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return lay(tmp_path)


# ---- usage, help, version


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["frobnicate"],
        ["check", "--frobnicate"],
        ["check", "surplus"],
        ["apply", "--model"],
        ["apply", "--model", "LlamaForCausalLM", "--model", "GPT2LMHeadModel"],
        ["revert", "--model=LlamaForCausalLM", "--model=LlamaForCausalLM"],
        ["revert", "--dry-run"],
        ["check", "--force"],
        ["check", "--site-packages", "/nowhere"],
        ["check", "--python", "/nowhere"],
        ["check", "--python", sys.executable, "--site-packages", "."],
    ],
    ids=" ".join,
)
def test_usage(words: list[str]) -> None:
    done = call(*words)
    assert done.code == 2
    assert done.out == ""
    assert "error: " in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("words", [["check", "--frobnicate"], ["revert", "--dry-run"]])
def test_a_usage_error_is_json_where_json_is_asked_for(words: list[str]) -> None:
    done = call(*words, "--json")
    assert (done.code, done.json["exit"], done.json["command"]) == (2, 2, words[0])
    assert words[1] in done.json["error"]["what"]
    assert "error: " in done.err


@pytest.mark.parametrize(
    "words",
    [
        ["check", "--js", "--frobnicate"],
        ["check", "--json=1"],
        ["rehearse", "--json", "vllm", "serve", "M", "--speculative-config", "{}"],
    ],
    ids=" ".join,
)
def test_json_in_whatever_form_it_is_asked_for(words: list[str]) -> None:
    done = call(*words)
    assert (done.code, done.json["exit"], done.json["command"]) == (2, 2, words[0])


def test_a_command_of_ones_own_may_ask_for_json_itself(site: Path) -> None:
    """What stands behind `--` is not for us."""
    done = call("check", "--frobnicate", "--", "vllm", "serve", "M", "--json", site=site)
    assert (done.code, done.out) == (2, "")


def test_a_full_disk_behind_what_is_said_of_the_usage() -> None:
    words = ["check", "--frobnicate", "--json"]
    done = run(*words, tool=["sh", "-c", 'exec "$@" >/dev/full', "sh", *TOOL])
    assert done.code == 6
    assert "cannot be written" in done.err
    assert "Traceback" not in done.err


def test_help_names_every_command_and_exit_code() -> None:
    done = run("--help")
    assert (done.code, done.err) == (0, "")
    for command in COMMANDS:
        assert f"\n    {command} " in done.out
    for number in range(7):
        assert f"{number} " in done.out.partition("exit codes:")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example_that_parses(command: str) -> None:
    done = call(command, "--help")
    assert (done.code, done.err) == (0, "")
    [example] = [line for line in done.out.splitlines() if line.startswith("example: ")]
    words = shlex.split(example.removeprefix("example: ").partition("|")[0])
    assert words[:2] == ["vllm-eagle3-patch", command]
    assert cli.parser().parse_args(words[1:]).command == command
    for option in ("--json", "--quiet", "--python", "--site-packages", "--model"):
        assert option in done.out


def test_help_where_there_is_only_ascii() -> None:
    for words in (["--help"], *([command, "--help"] for command in COMMANDS)):
        done = run(*words, PYTHONIOENCODING="ascii")
        assert (done.code, done.err) == (0, "")


def test_version_names_what_is_pinned() -> None:
    done = run("--version")
    assert (done.code, done.err) == (0, "")
    assert f"vllm-eagle3-patch {__version__}\n" in done.out
    listed = done.out.partition("pinned patches for vLLM: ")[2].partition(";")[0].split(", ")
    assert sorted(listed) == sorted(path.name for path in PATCHES.iterdir())
    assert (listed[0], listed[-1]) == ("0.10.1.1", "0.17.1")
    assert "native from 0.18.0" in done.out


def test_the_console_script_is_the_same_command() -> None:
    script = Path(sys.executable).with_name("vllm-eagle3-patch")
    assert run("--version", tool=[str(script)]) == run("--version")


# ---- what is not imported


def imported(*words: str, site: Path) -> set[str]:
    """Every module that the command imports, as `-X importtime` tells."""
    done = run(*words, site=site, tool=[sys.executable, "-X", "importtime", *TOOL[1:]])
    assert "Traceback" not in done.err
    lines = [line for line in done.err.splitlines() if line.startswith("import time:")]
    return {line.rpartition("|")[2].strip() for line in lines}


def packages(modules: set[str]) -> set[str]:
    return {name.partition(".")[0] for name in modules}


def test_the_engine_is_never_imported_and_libcst_only_for_codemods(site: Path) -> None:
    """There is a vllm and a torch to import, for this and by mistake: both end the process."""
    ends = "raise SystemExit('imported!')\n"
    (site / "torch").mkdir()
    for name in ("torch/__init__.py", "transformers.py", "numpy.py"):
        (site / name).write_text(ends)
    (site / "vllm/__init__.py").write_text(ends)
    engine = {"vllm", "torch", "transformers", "numpy"}
    for words in (["check"], ["apply", "--dry-run"], ["diff"], ["apply"], ["check"], ["revert"]):
        seen = packages(imported(*words, site=site))
        assert "vllm_eagle3_patches" in seen
        assert not seen & {*engine, "libcst", "yaml"}, words
        assert "unidiff" in seen or words[0] in ("check", "revert"), words
    another_build(site)
    for words in (["apply"], ["revert"]):
        seen = packages(imported(*words, site=site))
        assert not seen & engine
        assert ("libcst" in seen) == (words == ["apply"])


def test_no_vllm_from_the_current_folder_or_the_path(site: Path) -> None:
    (site / "vllm/__init__.py").write_text("raise SystemExit('imported!')\n")
    done = run("check", site=site, cwd=site, PYTHONPATH=str(site))
    assert done.code == 1
    assert "imported!" not in done.err


def test_help_and_version_import_little(site: Path) -> None:
    for words in (["--help"], ["--version"]):
        done = run(*words, tool=[sys.executable, "-X", "importtime", *TOOL[1:]])
        assert "libcst" not in done.err
        assert "unidiff" not in done.err


# ---- the streams


def test_a_closed_standard_input(site: Path) -> None:
    """No prompt, ever: not even a look at whether there is somebody to ask."""
    for command in ("check", "apply", "diff", "revert"):
        script = 'exec 0<&-; exec "$@"'
        done = run(command, site=site, tool=["sh", "-c", script, "sh", *TOOL])
        assert (done.code, done.err) == (1 if command == "check" else 0, "")


def test_nothing_is_read_from_standard_input(site: Path) -> None:
    read, write = os.pipe()
    try:
        os.write(write, b"y\n")
        for command in ("apply", "revert"):
            words = [*TOOL, command, "--site-packages", str(site)]
            subprocess.run(words, stdin=read, stdout=subprocess.DEVNULL, check=True)
        assert os.read(read, 10) == b"y\n"
    finally:
        os.close(read)
        os.close(write)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_standard_output(site: Path, command: str) -> None:
    done = run(command, site=site, tool=["sh", "-c", 'exec 1>&-; exec "$@"', "sh", *TOOL])
    assert (done.code, done.err) == (1 if command == "check" else 0, "")


@pytest.mark.parametrize("words", [["check"], ["check", "--json"], ["diff"]], ids=" ".join)
def test_a_full_disk_behind_standard_output(site: Path, words: list[str]) -> None:
    with unchanged(site):
        done = run(*words, site=site, tool=["sh", "-c", 'exec "$@" >/dev/full', "sh", *TOOL])
    assert done.code == 6
    assert "No space left on device" in done.err
    assert "Traceback" not in done.err
    assert "Exception ignored" not in done.err


@pytest.mark.parametrize("words", [["apply"], ["apply", "--json"], ["revert"]], ids=" ".join)
def test_a_full_disk_behind_the_answer_to_work_that_is_done(site: Path, words: list[str]) -> None:
    if words == ["revert"]:
        call("apply", site=site)
    done = run(*words, site=site, tool=["sh", "-c", 'exec "$@" >/dev/full', "sh", *TOOL])
    assert done.code == 6
    assert "the answer cannot be written: No space left on device" in done.err
    assert "it may have done its work: run vllm-eagle3-patch check" in done.err
    full = ["sh", "-c", 'exec "$@" >/dev/full 2>/dev/full', "sh", *TOOL]
    assert run(*words, site=site, tool=full).code == 6


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["check"], 1),
        (["check", "--json"], 1),
        (["check", "--model", "MambaForCausalLM"], 3),
        (["apply", "--json", "--model", "MambaForCausalLM"], 3),
        (["check", "--json", "--model", "Nope"], 2),
        (["check", "--json", "--nope"], 2),
        (["check", "--nope"], 2),
        (["apply"], 0),
        (["diff"], 0),
        (["--help"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_a_reader_that_is_gone_does_not_change_the_exit_code(
    site: Path, words: list[str], code: int
) -> None:
    where = tree(VERSION) if "MambaForCausalLM" in words else site  # refused: nothing is written
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [*TOOL, *words, *([] if "--help" in words else ["--site-packages", where])],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=writer if code == 3 else subprocess.PIPE,
        )
    finally:
        os.close(writer)
    assert done.returncode == code
    assert b"Exception ignored" not in (done.stderr or b"")


# ---- what ends a command


def ended_by(error: BaseException) -> Callable[..., object]:
    def check(*_: object, **__: object) -> object:
        raise error

    return check


def test_the_interrupt_key(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "check", ended_by(KeyboardInterrupt()))
    done = call("check", site=site)
    assert (done.code, done.out, done.err) == (130, "", "interrupted\n")


def test_the_system_refuses(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal = OSError(5, "Input/output error", "/some/file")
    monkeypatch.setattr(operations, "check", ended_by(refusal))
    done = call("check", site=site)
    assert done.code == 6
    assert "Input/output error" in done.err
    assert "where: /some/file" in done.err
    told = call("check", "--json", site=site)
    assert (told.code, told.json["exit"], told.err) == (6, 6, "")


def test_garbage_collection_is_as_it_was(site: Path) -> None:
    import gc

    call("check", site=site)
    assert gc.isenabled()
