"""The shipped patches: generated, up to date, and headed as DEP-3 says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from real import CLOSED, architecture, edits, sources, target

from vllm_eagle3_patches import plan

ROOT = Path(__file__).parent.parent
PATCHES = sorted((ROOT / "patches").glob("*/*.patch"))
FIELDS = (
    "Description",
    "Origin",
    "Bug",
    "Applied-Upstream",
    "Last-Update",
    "X-Gate",
    "X-Codemod",
    "X-vLLM",
)


def header(patch: Path) -> dict[str, str]:
    """Field -> value; the lines that begin with a blank belong to the field above."""
    fields: dict[str, str] = {}
    name = ""
    for line in patch.read_text().partition("\n---\n")[0].splitlines():
        if line.startswith(" "):
            fields[name] += "\n" + line[1:]
        else:
            name, _, value = line.partition(": ")
            fields[name] = value
    return fields


def test_the_generator_finds_nothing_to_change() -> None:
    command = [sys.executable, str(ROOT / "tools" / "make_patches.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "differ: none\n"), done.stderr


@pytest.mark.parametrize("patch", PATCHES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_the_header_has_the_fields_of_dep_3(patch: Path) -> None:
    fields = header(patch)
    assert set(FIELDS) <= fields.keys()
    assert all(fields.values())
    summary, *more = fields["Description"].split("\n")
    assert len(summary) < 80 and more
    assert fields["Origin"].startswith("vendor")
    assert fields["Bug"].startswith("https://github.com/vllm-project/vllm/")
    assert fields["Applied-Upstream"] == "0.18.0"
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", fields["Last-Update"])
    assert fields["X-vLLM"] == patch.parent.name
    assert fields["X-Gate"] == edits(patch.parent.name)[patch.stem].gate


@pytest.mark.parametrize("patch", PATCHES, ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_a_patch_is_for_one_gate_and_one_file(patch: Path) -> None:
    body = patch.read_text().partition("\n---\n")[2]
    edit = edits(patch.parent.name)[patch.stem]
    assert re.findall(r"^--- (.*)$", body, re.MULTILINE) == [f"a/{edit.path}"]
    assert re.findall(r"^\+\+\+ (.*)$", body, re.MULTILINE) == [f"b/{edit.path}"]


@pytest.mark.parametrize("version", [v for v in CLOSED if v != "0.10.1"])
def test_a_folder_holds_a_patch_for_each_edit_and_no_more(version: str) -> None:
    needed = plan.edits_for(sources(version), target(version, architecture(version)))
    expected = {f"{edit.name}.patch" for edit in needed}
    folder = ROOT / "patches" / version
    assert {path.name for path in folder.iterdir()} == {
        *expected, "series", "SHA256SUMS.before", "SHA256SUMS.after"
    }  # fmt: skip
    assert (folder / "series").read_text() == "".join(f"{edit.name}.patch\n" for edit in needed)


def test_there_is_a_folder_for_each_release_and_no_other() -> None:
    present = {path.name for path in (ROOT / "patches").iterdir()}
    assert present == set(CLOSED) - {"0.10.1"}
