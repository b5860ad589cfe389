from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import (
    CONFIG,
    DECODER,
    DEEPSEEK,
    LOADER,
    TOOL,
    TOUCHED,
    another_build,
    call,
    lay,
    rerecord,
    run,
    unchanged,
)

PIPE_TO_HEAD = ["bash", "-o", "pipefail", "-c", '"$@" | head -1', "bash"]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return lay(tmp_path)


def patch(diff: str, site: Path, *words: str) -> str:
    done = subprocess.run(
        ["patch", "-p1", "--fuzz=0", "-d", str(site), *words],
        input=diff.encode(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    said = done.stdout.decode()
    assert done.returncode == 0, said
    return said


def contents(site: Path) -> dict[str, bytes]:
    return {path: (site / path).read_bytes() for path in TOUCHED}


def applied(site: Path, into: Path) -> dict[str, bytes]:
    """What `apply` makes of a copy."""
    copy = Path(shutil.copytree(site, into))
    assert call("apply", "--allow-modified", site=copy).code == 0
    return contents(copy)


@pytest.mark.parametrize("build", ["release", "another"])
def test_patch_does_what_apply_does(site: Path, tmp_path: Path, build: str) -> None:
    if build == "another":
        another_build(site)
    before, expected = contents(site), applied(site, tmp_path / "copy")
    with unchanged(site):
        done = run("diff", site=site)
    assert (done.code, done.err) == (0, "")
    said = patch(done.out, site)
    assert "fuzz" not in said and "offset" not in said
    assert contents(site) == expected
    patch(done.out, site, "-R")
    assert contents(site) == before


def test_git_apply_does_what_apply_does(site: Path, tmp_path: Path) -> None:
    expected = applied(site, tmp_path / "copy")
    diff = call("diff", site=site).out
    for words in (["--check"], []):
        subprocess.run(["git", "apply", *words, "-"], input=diff.encode(), cwd=site, check=True)
    assert contents(site) == expected


def test_the_pipe_of_the_help(site: Path, tmp_path: Path) -> None:
    expected = applied(site, tmp_path / "copy")
    diff = subprocess.Popen([*TOOL, "diff", "--site-packages", site], stdout=subprocess.PIPE)
    done = subprocess.run(["patch", "-p1", "-d", site], stdin=diff.stdout, capture_output=True)
    assert (diff.wait(), done.returncode) == (0, 0)
    assert diff.stdout is not None
    diff.stdout.close()
    assert contents(site) == expected


def test_the_same_before_and_after_apply(site: Path) -> None:
    before = call("diff", site=site)
    call("apply", site=site)
    assert call("diff", site=site) == before
    assert before.out.startswith(f"--- a/{CONFIG}\n+++ b/{CONFIG}\n@@ -")


def test_of_one_target_and_of_all_applied(site: Path) -> None:
    own = call("diff", "--model", DEEPSEEK, site=site).out
    assert LOADER not in own
    whole = call("diff", site=site).out
    call("apply", site=site)
    assert call("diff", "--model", DEEPSEEK, site=site).out == whole


def test_empty_where_native(tmp_path: Path) -> None:
    site = lay(tmp_path, "0.18.0")
    assert call("diff", site=site) == call("diff", "--quiet", site=site)
    assert call("diff", site=site).out == ""


def test_json(site: Path) -> None:
    done = call("diff", "--json", site=site)
    assert done.code == 0
    assert done.json["diff"] == call("diff", site=site).out
    assert done.json["command"] == "diff"


@pytest.mark.parametrize("end", ["\r\n", "no final newline", "form feed"])
def test_line_ends(site: Path, tmp_path: Path, end: str) -> None:
    data = (site / DECODER).read_bytes()
    if end == "\r\n":
        data = data.replace(b"\n", b"\r\n")
    elif end == "form feed":
        data = data.replace(b"\n\n\nclass ", b"\n\x0c\n\nclass ")
    else:
        data = data.rstrip(b"\n")
    (site / DECODER).write_bytes(data)
    rerecord(site, DECODER)
    expected = applied(site, tmp_path / "copy")
    diff = call("diff", site=site)
    assert diff.code == 0
    patch(diff.out, site, "--binary")
    assert contents(site) == expected
    patch(diff.out, site, "--binary", "-R")
    assert (site / DECODER).read_bytes() == data


def test_a_reader_that_goes_away(site: Path) -> None:
    """`diff | head -1`: no traceback, no complaint, and no failure under `pipefail`."""
    done = subprocess.run(
        [*PIPE_TO_HEAD, *TOOL, "diff", "--site-packages", str(site)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )
    assert done.stdout.decode() == f"--- a/{CONFIG}\n"
    assert done.stderr == b""
    assert done.returncode == 0


def test_a_reader_that_was_never_there(site: Path) -> None:
    for words in (["diff"], ["check"], ["check", "--json"]):
        process = subprocess.Popen(
            [*TOOL, *words, "--site-packages", site], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait() in (0, 1)


def test_the_bytes_do_not_depend_on_the_locale(site: Path) -> None:
    text = (site / CONFIG).read_text()
    anchor = "        if (\n            self.method in ("  # three lines below the list
    assert text.count(anchor) >= 1
    remark = "        # Zwölf, 十二\n"
    (site / CONFIG).write_text(text.replace(anchor, remark + anchor), encoding="utf-8")
    rerecord(site, CONFIG)
    done = run("diff", "--model", DEEPSEEK, site=site, PYTHONIOENCODING="ascii")
    assert (done.code, done.err) == (0, "")
    assert remark in done.out


def test_an_error(site: Path) -> None:
    (site / CONFIG).write_bytes(b"import os\n" + (site / CONFIG).read_bytes())
    done = call("diff", site=site)
    assert done.code == 4
    assert done.out == ""
    assert CONFIG in done.err
    told = call("diff", "--json", site=site)
    assert (told.code, told.err) == (4, "")
    assert CONFIG in told.json["error"]["what"]
    assert call("diff", "--allow-modified", site=site).code == 0


def test_needs_no_patch_and_no_git(site: Path) -> None:
    assert run("diff", site=site, tool=[sys.executable, *TOOL[1:]], PATH="/nowhere").code == 0
