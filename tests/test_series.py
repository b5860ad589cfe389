import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from real import (
    CLOSED,
    DEEPSEEK,
    DEEPSEEK_FILE,
    KIMI,
    KIMI_FILE,
    architecture,
    sources,
    swap,
    target,
    text,
    with_texts,
)

from vllm_eagle3_patches import plan, series
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import Edit
from vllm_eagle3_patches.series import Series, parse_sums, patched, safe
from vllm_eagle3_patches.sources import Sources, sha256
from vllm_eagle3_patches.target import Request, find

PINNED = [version for version in CLOSED if version != "0.10.1"]
PATH = "vllm/a.py"
EDIT = Edit("one", "interface", PATH, ("A",), "interface")
LINES = [f"line {number}\n" for number in range(1, 21)]
DIFF = f"""\
Description: what it does
X-Codemod: {EDIT.call}
---
--- a/{PATH}
+++ b/{PATH}
@@ -4,5 +4,6 @@
 line 4
 line 5
-line 6
+line six
+line six and a half
 line 7
 line 8
"""
RESULT = "".join(LINES).replace("line 6\n", "line six\nline six and a half\n")


def of_text(content: str) -> Sources:
    return Sources(Path("/nowhere"), {PATH: content.encode()})


def apply(diff: str, content: str = "".join(LINES)) -> str:
    return patched(diff, of_text(content), {}, Path("one.patch"))[PATH].decode()


def pinned(version: str) -> Series:
    (found,) = [s for s in series.available() if s.version == version]
    return found


def edits(version: str, name: str | None = None) -> list[Edit]:
    return plan.edits_for(sources(version), target(version, name or architecture(version)))


@pytest.fixture
def written(tmp_path: Path) -> Series:
    """A series of one patch for one file."""
    (tmp_path / "series").write_text("one.patch\n")
    (tmp_path / "one.patch").write_text(DIFF)
    before = sha256("".join(LINES).encode())
    (tmp_path / series.BEFORE).write_text(f"{before}  {PATH}\n")
    (tmp_path / series.AFTER).write_text(f"{sha256(RESULT.encode())}  {PATH}\n")
    return Series("9.9.9", tmp_path)


@pytest.mark.parametrize("version", ["0.11.2", "0.15.1", "0.17.1"])
def test_another_targets_edit_of_the_same_name_is_not_the_pinned_one(version: str) -> None:
    """Llama lacks nothing but its config's model_type in the list; the pinned patch of that list
    adds DeepSeek's and Kimi's."""
    where = sources(version)
    llama = find(where, Request("LlamaForCausalLM", "some_other"), version)
    wanted = plan.edits_for(where, llama)
    assert [edit.name for edit in wanted] == ["model-type"]
    assert series.find(where, wanted, version) is None
    made = plan.make(where, [llama], version)
    assert made.source == "codemod"
    assert b'"some_other"' in made.after["vllm/config/speculative.py"]


# paths


@pytest.mark.parametrize("path", ["vllm/a.py", "vllm/a/b c.py", "vllm/..a.py"])
def test_safe_paths(path: str) -> None:
    assert safe(path) == path


@pytest.mark.parametrize(
    "path",
    [
        "", "vllm", "/vllm/a.py", "/etc/passwd", "a.py", "other/a.py", "../vllm/a.py",
        "vllm/../a.py", "vllm/a/../../b.py", "vllm/./a.py", "vllm//a.py", "vllm/a/",
        "vllm\\a.py", "vllm/..\\a.py", "C:/vllm/a.py", "dev/null",
    ],
)  # fmt: skip
def test_other_paths_are_refused(path: str) -> None:
    with pytest.raises(RefusedError, match="outside the package"):
        safe(path)


# sums


def test_parse_sums() -> None:
    digest = "0123456789abcdef" * 4
    text = f"{digest}  vllm/a.py\n{digest}  vllm/b  c.py\n"
    assert parse_sums(text, Path("sums")) == {"vllm/a.py": digest, "vllm/b  c.py": digest}
    assert parse_sums("", Path("sums")) == {}


@pytest.mark.parametrize(
    "line",
    ["vllm/a.py", "abc  vllm/a.py", f"{'0' * 64} vllm/a.py", "0" * 64, f"{'0' * 65}  vllm/a.py",
     f"{'0' * 64}  ../a.py", f"{'0' * 64}  /vllm/a.py", f"{'0' * 64} *vllm/a.py", "\n"],
)  # fmt: skip
def test_other_lines_are_refused(line: str) -> None:
    with pytest.raises(RefusedError):
        parse_sums(f"{line}\n", Path("sums"))


# the diff


def test_a_diff_is_applied() -> None:
    assert apply(DIFF) == RESULT


@pytest.mark.parametrize("end", ["", "\n"])
def test_the_end_of_the_file_is_kept(end: str) -> None:
    content = "".join(LINES).rstrip("\n") + end
    assert apply(DIFF, content) == RESULT.rstrip("\n") + end


def test_a_file_under_way_is_taken_from_there() -> None:
    over = {PATH: "".join(LINES).encode()}
    assert patched(DIFF, of_text("other"), over, Path("p"))[PATH].decode() == RESULT


@pytest.mark.parametrize(
    "content",
    [
        "line 0\n" + "".join(LINES),  # one line further down
        "".join(LINES[1:]),
        "".join(LINES).replace("line 4\n", "line four\n"),  # another context
        "".join(LINES).replace("line 8\n", "line 8 \n"),
        "".join(LINES).replace("\n", "\r\n"),
        RESULT,  # applied already
        "".join(LINES[:6]),
        "",
    ],
)
def test_there_is_no_fuzz_and_no_offset(content: str) -> None:
    with pytest.raises(RefusedError, match=r"the hunk at line 4 of vllm/a\.py does not match"):
        apply(DIFF, content)


def test_hunks_out_of_order_are_refused() -> None:
    hunk = DIFF[DIFF.index("@@") :]
    with pytest.raises(RefusedError):
        apply(DIFF + hunk)


@pytest.mark.parametrize(
    "diff",
    [
        DIFF.replace("+line six\n", ""),
        DIFF.replace(" line 8\n", ""),
        DIFF.replace("@@ -4,5 +4,6 @@", "@@ -4,9 +4,9 @@"),
    ],
)
def test_a_broken_diff_is_refused(diff: str) -> None:
    with pytest.raises(RefusedError):
        apply(diff)


@pytest.mark.parametrize("path", ["../a.py", "/etc/passwd", "vllm/../../a.py", "setup.py"])
def test_a_diff_that_leads_out_is_refused(path: str) -> None:
    with pytest.raises(RefusedError, match="outside the package"):
        apply(DIFF.replace(f"b/{PATH}", f"b/{path}").replace(f"a/{PATH}", f"a/{path}"))


# a series


def test_a_series_fits_and_applies(written: Series) -> None:
    where = of_text("".join(LINES))
    assert written.patches == ("one",)
    assert written.edits == {("one", PATH, EDIT.call)}
    assert written.fits(where, [EDIT])
    assert written.apply(where, [EDIT]) == {PATH: RESULT.encode()}


def test_a_series_does_not_fit_other_bytes(written: Series) -> None:
    assert not written.fits(of_text("".join(LINES) + "\n"), [EDIT])


def test_a_series_does_not_fit_other_edits(written: Series) -> None:
    where = of_text("".join(LINES))
    other = Edit("two", "interface", PATH, ("A",), "interface")
    assert not written.fits(where, [other])
    assert not written.fits(where, [EDIT, other])


def test_a_result_with_another_hash_is_refused(written: Series) -> None:
    (written.path / series.AFTER).write_text(f"{'0' * 64}  {PATH}\n")
    with pytest.raises(RefusedError, match="do not give the pinned hash") as raised:
        written.apply(of_text("".join(LINES)), [EDIT])
    assert raised.value.where == PATH


def test_a_series_never_patches_other_bytes(written: Series) -> None:
    with pytest.raises(RefusedError, match="does not match"):
        written.apply(of_text("".join(LINES[1:])), [EDIT])
    with pytest.raises(RefusedError, match="pinned hash"):
        written.apply(of_text("".join(LINES) + "line 21\n"), [EDIT])


@pytest.mark.parametrize("name", ["series", "one.patch", series.BEFORE, series.AFTER])
def test_a_link_in_a_series_is_refused(written: Series, tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    shutil.move(tmp_path / name, elsewhere)
    (tmp_path / name).symlink_to(elsewhere)
    with pytest.raises(RefusedError, match="plain files of its own folder"):
        if written.fits(of_text("".join(LINES)), [EDIT]):
            written.apply(of_text("".join(LINES)), [EDIT])


@pytest.mark.parametrize(
    "name", ["../one.patch", "/tmp/one.patch", "a/../one.patch", "sub/one.patch"]
)
def test_a_series_that_names_files_elsewhere_is_refused(written: Series, name: str) -> None:
    (written.path / "series").write_text(f"{name}\n")
    with pytest.raises(RefusedError, match="plain files of its own folder"):
        written.fits(of_text("".join(LINES)), [EDIT])


@pytest.mark.parametrize("name", ["series", "one.patch", series.BEFORE, series.AFTER])
def test_a_missing_or_garbled_file_is_named(written: Series, name: str) -> None:
    for damage in (Path.unlink, lambda path: path.write_bytes(b"\xff")):
        damage(written.path / name)
        with pytest.raises(RefusedError, match="cannot be read") as raised:
            fresh = Series("9.9.9", written.path)
            fresh.fits(of_text("".join(LINES)), [EDIT])
            fresh.apply(of_text("".join(LINES)), [EDIT])
        assert raised.value.where == str(written.path / name)


# the shipped ones


def test_available_are_the_pinned_releases_oldest_first() -> None:
    assert [s.version for s in series.available()] == PINNED


def test_none_available_without_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(series, "folder", lambda: tmp_path / "no")
    assert series.available() == []
    assert series.find(sources("0.17.1"), edits("0.17.1"), "0.17.1") is None


@pytest.mark.parametrize("version", PINNED)
def test_the_sums_name_the_same_files(version: str) -> None:
    found = pinned(version)
    assert found.before.keys() == found.after.keys()
    assert {path for _, path, _ in found.edits} == found.before.keys()


@pytest.mark.parametrize("version", PINNED)
def test_each_fits_its_release_for_each_target(version: str) -> None:
    for name in {DEEPSEEK, architecture(version)}:
        needed = edits(version, name)
        assert pinned(version).fits(sources(version), needed)
        found = series.find(sources(version), needed, "")
        assert found is not None and found.before == {
            path: sha256(sources(version).data(path)) for path in found.before
        }


def test_the_content_decides_not_the_version() -> None:
    found = series.find(sources("0.10.1"), edits("0.10.1"), "0.10.1")
    assert found is not None and found.version == "0.10.1.1"
    hinted = series.find(sources("0.16.0"), edits("0.16.0"), "0.17.1")
    assert hinted is not None and hinted.version == "0.16.0"


def test_one_changed_byte_and_no_series_fits() -> None:
    for path in (DEEPSEEK_FILE, KIMI_FILE):
        where = with_texts("0.17.1", {path: text("0.17.1", path) + "\n"})
        assert series.find(where, edits("0.17.1"), "0.17.1") is None


def test_a_file_that_a_target_does_not_need_may_differ() -> None:
    where = with_texts("0.17.1", {KIMI_FILE: text("0.17.1", KIMI_FILE) + "\n"})
    assert series.find(where, edits("0.17.1", DEEPSEEK), "0.17.1") is not None


def test_a_part_of_the_edits_to_a_file_is_not_what_is_pinned() -> None:
    part = [edit for edit in edits("0.17.1", KIMI) if edit.name != "aux-capture"]
    assert series.find(sources("0.17.1"), part, "0.17.1") is None


def test_a_shipped_patch_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    folder = shutil.copytree(pinned("0.17.1").path, tmp_path / "0.17.1")
    patch = folder / "aux-capture.patch"
    patch.write_text(swap(patch.read_text(), "+        return (2, ", "+        return (3, "))
    with pytest.raises(RefusedError, match="pinned hash"):
        Series("0.17.1", folder).apply(sources("0.17.1"), edits("0.17.1"))


def test_a_pinned_patch_is_not_taken_for_the_same_edit_of_another_target() -> None:
    """The list of model types is one file and one edit for all, but not one text."""
    at = sources("0.17.1")
    (own,) = [edit for edit in edits("0.17.1") if edit.name == "model-type"]
    other = replace(own, arguments={"types": "glm4_moe"})
    assert pinned("0.17.1").fits(at, [own])
    assert not pinned("0.17.1").fits(at, [other])


def test_the_pinned_list_of_model_types_is_not_taken_for_another_target() -> None:
    """It is the one edit that Mistral3 needs in 0.17.1, in the same file as DeepSeek's."""
    where = sources("0.17.1")
    wanted = Request("Mistral3ForConditionalGeneration", "mistral", "MistralForCausalLM")
    made = plan.make(where, [find(where, wanted, "0.17.1")], "0.17.1")
    assert (made.source, [edit.arguments for edit in made.edits]) == (
        "codemod",
        [{"types": "mistral"}],
    )
