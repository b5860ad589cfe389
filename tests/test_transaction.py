from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest
from fake_dist import editable, row
from fake_package import (
    INIT,
    ONE,
    ORIGINAL,
    TWO,
    A,
    B,
    C,
    commit,
    compile_all,
    digests,
    fake_package,
    hooked,
    in_child,
    plan,
    recover,
    stale,
    tree,
)

from vllm_eagle3_patches import files
from vllm_eagle3_patches.errors import IntegrityError, PatchError, RefusedError, WriteError
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.receipt import RECEIPT, PatchedFile, Receipt, dump, load
from vllm_eagle3_patches.record import Record
from vllm_eagle3_patches.sources import sha256
from vllm_eagle3_patches.transaction import State, Transaction, interrupted, read_state


@pytest.fixture
def at(tmp_path: Path) -> Installation:
    return fake_package(tmp_path / "env" / "site")


def receipt_of(at: Installation) -> Receipt:
    receipt = load(at.dist_info / RECEIPT)
    assert receipt is not None
    return receipt


def everything(at: Installation) -> dict[Path, tuple[int, int, int, int]]:
    """Whatever a write of any kind would change, times and inodes too."""
    return {
        path: (s.st_ino, s.st_mtime_ns, s.st_ctime_ns, s.st_size)
        for path in [at.root, *at.root.rglob("*")]
        for s in [path.lstat()]
    }


def test_nothing_to_do_writes_nothing(at: Installation) -> None:
    before = everything(at)
    assert interrupted(at) is None
    assert commit(at, {}) == []
    assert recover(at) == []
    assert everything(at) == before


def test_apply(at: Installation) -> None:
    site, info = at.root, at.dist_info.name
    record = at.record_path.read_bytes()
    compile_all(site)
    assert commit(at, ONE) == [A, B]
    assert (site / A).read_bytes() == ONE[A]
    assert stat.S_IMODE((site / A).stat().st_mode) == 0o444
    assert (site / B).read_bytes() == ONE[B]
    assert not (site / B).is_symlink()
    assert stat.S_IMODE((site / B).stat().st_mode) == 0o640
    assert (site.parent / "cache/b.py").read_bytes() == ORIGINAL[B]
    assert at.record_path.read_bytes() == record + f"{info}/{RECEIPT},,\r\n".encode()
    assert [file.path for file in receipt_of(at).files] == [A, B]
    assert receipt_of(at).pending == ()
    assert stale(site) == []
    kept = {path.name.split(".")[0] for path in site.rglob("*.pyc")}
    assert kept == {"__init__", "c"}, "the bytecode of other modules stays"
    assert interrupted(at) is None


def test_apply_again_writes_nothing(at: Installation) -> None:
    commit(at, ONE)
    before = everything(at)
    assert commit(at, ONE) == []
    with Transaction(at) as transaction:
        contents, receipt, expected = plan(at, ONE)
        assert receipt is not None
        newer = replace(receipt, tool_version="9.9.9")
        assert transaction.commit(contents, newer, expected=expected) == []
    assert everything(at) == before


def test_revert_leaves_no_trace(at: Installation) -> None:
    before = tree(at.root)
    commit(at, ONE)
    compile_all(at.root)
    assert commit(at, {}) == [A, B]
    assert tree(at.root) == before
    assert (at.root / B).is_symlink()
    assert stale(at.root) == []


def test_revert_again_writes_nothing(at: Installation) -> None:
    commit(at, ONE)
    commit(at, {})
    before = everything(at)
    assert commit(at, {}) == []
    assert everything(at) == before


def test_change_from_one_to_another(at: Installation) -> None:
    before = tree(at.root)
    commit(at, ONE)
    assert commit(at, TWO) == [A, B, C]
    assert (at.root / A).read_bytes() == TWO[A]
    assert (at.root / B).is_symlink()
    assert (at.root / C).read_bytes() == TWO[C]
    assert [file.original for file in receipt_of(at).files] == [ORIGINAL[A], ORIGINAL[C]]
    commit(at, {})
    assert tree(at.root) == before


def test_hard_links_keep_the_old_bytes(at: Installation) -> None:
    cached = at.root.parent / "cache/c.py"
    assert cached.samefile(at.root / C)
    commit(at, {C: b"X = 'c1'\n"})
    assert cached.read_bytes() == ORIGINAL[C]
    commit(at, {})
    assert cached.read_bytes() == (at.root / C).read_bytes() == ORIGINAL[C]


@pytest.mark.parametrize("how", ["gone", "changed", "folder"])
def test_a_link_that_leads_elsewhere_now_comes_back_as_a_file(at: Installation, how: str) -> None:
    commit(at, ONE)
    cached = at.root.parent / "cache/b.py"
    cached.unlink()
    if how == "changed":
        cached.write_bytes(b"other\n")
    if how == "folder":
        cached.mkdir()
    commit(at, {})
    assert not (at.root / B).is_symlink()
    assert (at.root / B).read_bytes() == ORIGINAL[B]
    assert stat.S_IMODE((at.root / B).stat().st_mode) == 0o640
    assert commit(at, {}) == []


def test_only_the_receipt_changes(at: Installation) -> None:
    commit(at, ONE)
    with Transaction(at) as transaction:
        contents, receipt, expected = plan(at, ONE)
        assert receipt is not None
        more = replace(receipt, targets=("Kimi", "Llama"))
        files_before = {p: v for p, v in everything(at).items() if p.suffix == ".py"}
        assert transaction.commit(contents, more, expected=expected) == []
    assert receipt_of(at) == more
    assert {p: v for p, v in everything(at).items() if p.suffix == ".py"} == files_before


def test_a_file_put_back_by_hand_gets_its_mode_and_link_again(at: Installation) -> None:
    before = tree(at.root)
    commit(at, ONE)
    for name in (A, B):
        (at.root / name).unlink()
        (at.root / name).write_bytes(ORIGINAL[name])
    assert commit(at, {}) == [A, B]
    assert tree(at.root) == before


def test_a_file_that_is_gone_comes_back(at: Installation) -> None:
    before = tree(at.root)
    commit(at, ONE)
    (at.root / A).unlink()
    assert digests(at, A) == {A: None}
    assert commit(at, {}) == [A, B]
    assert tree(at.root) == before


def test_a_file_that_is_gone_stays_gone_when_the_run_fails(at: Installation) -> None:
    commit(at, ONE)
    (at.root / A).unlink()
    (at.root / B).unlink()
    (at.root / B).symlink_to("nowhere")
    before = tree(at.root)

    def hook(n: int, name: str, args: tuple[Any, ...], call: Any) -> Any:
        if args == (at.dist_info / RECEIPT,):
            raise OSError(errno.EIO, "Input/output error")
        return call()

    with hooked(hook, "unlink"), pytest.raises(WriteError, match="nothing was changed"):
        commit(at, {})
    assert tree(at.root) == before
    assert interrupted(at) is None


def test_owner_is_kept(at: Installation) -> None:
    """As root; another user cannot own a file of somebody else's."""
    if os.geteuid() == 0:
        os.chown(at.root / A, 12, 34)
        os.chown(at.dist_info, 56, 78)
    owner = (at.root / A).stat()
    folder = at.dist_info.stat()
    commit(at, ONE)
    now = (at.root / A).stat()
    assert (now.st_uid, now.st_gid) == (owner.st_uid, owner.st_gid)
    receipt = (at.dist_info / RECEIPT).stat()
    assert (receipt.st_uid, receipt.st_gid) == (folder.st_uid, folder.st_gid)


def test_the_receipt_is_as_readable_as_record(at: Installation) -> None:
    at.record_path.chmod(0o640)
    commit(at, ONE)
    for path in (at.record_path, at.dist_info / RECEIPT):
        assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_an_editable_checkout(tmp_path: Path) -> None:
    checkout, site = tmp_path / "checkout", tmp_path / "site"
    for name, data in ORIGINAL.items():
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_bytes(data)
    site.mkdir()
    info = editable(site, checkout)
    at = Installation("vllm", "0.1.dev1", site, checkout, info, True, "a test")
    before = tree(tmp_path)
    assert commit(at, ONE) == [A, B]
    assert Record.read(at.record_path).owns(f"{info.name}/{RECEIPT}")
    assert (checkout / A).read_bytes() == ONE[A]
    commit(at, {})
    assert tree(tmp_path) == before


# What is asked must fit what is there


@pytest.mark.parametrize("name", [A, INIT])
def test_a_file_is_not_as_expected(at: Installation, name: str) -> None:
    with Transaction(at) as transaction:
        contents, receipt, expected = plan(at, ONE)
        expected |= digests(at, INIT)  # one that the plan has only read
        (at.root / name).unlink()
        (at.root / name).write_bytes(b"someone else\n")
        before = everything(at)
        with pytest.raises(IntegrityError, match=f"{name} was changed by someone else") as caught:
            transaction.commit(contents, receipt, expected=expected)
        assert everything(at) == before
    assert caught.value.where == str(at.root / name)


def test_a_file_that_is_gone_is_not_as_expected(at: Installation) -> None:
    with Transaction(at) as transaction:
        contents, receipt, expected = plan(at, ONE)
        (at.root / A).unlink()
        with pytest.raises(IntegrityError, match="was changed by someone else"):
            transaction.commit(contents, receipt, expected=expected)


def test_something_that_is_no_file(at: Installation) -> None:
    (at.root / A).unlink()
    os.mkfifo(at.root / A)
    with pytest.raises(IntegrityError, match="not a regular file"):
        read_state(at.root / A)
    (at.root / A).unlink()
    (at.root / A).mkdir()
    with pytest.raises(IntegrityError, match="not a regular file"):
        read_state(at.root / A)


def test_state_of_files(at: Installation) -> None:
    assert read_state(at.root / A) == State(ORIGINAL[A], 0o444)
    assert read_state(at.root / B) == State(ORIGINAL[B], 0o640, "../../../cache/b.py")
    assert read_state(at.root / "gone").digest is None
    (at.root / "loop").symlink_to("loop")
    with pytest.raises(WriteError, match=r"loop cannot be read: .*\(ELOOP\)"):
        read_state(at.root / "loop")


def test_a_folder_that_leads_out_of_the_package(at: Installation, tmp_path: Path) -> None:
    shutil.move(at.root / "vllm/models", tmp_path / "elsewhere")
    (at.root / "vllm/models").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError):
        commit(at, {C: b"x\n"})
    assert (tmp_path / "elsewhere/c.py").read_bytes() == ORIGINAL[C]


@pytest.mark.parametrize("name", ["../x.py", "numpy/x.py", "/etc/passwd", "vllm"])
def test_a_path_outside_the_package(at: Installation, name: str) -> None:
    receipt = plan(at, ONE)[1]
    with Transaction(at) as transaction, pytest.raises(RefusedError):
        transaction.commit({name: b"x"}, receipt, expected={**digests(at, *ONE), name: None})


def test_arguments_that_contradict_each_other(at: Installation) -> None:
    contents, receipt, expected = plan(at, ONE)
    assert receipt is not None
    first, second = receipt.files
    with Transaction(at) as t:
        with pytest.raises(ValueError, match="needs a receipt"):
            t.commit(contents, None, expected=expected)
        with pytest.raises(ValueError, match="not in expected"):
            t.commit(contents, receipt, expected={})
        with pytest.raises(ValueError, match="as the receipt says"):
            t.commit({**contents, A: b"other"}, receipt, expected=expected)
        with pytest.raises(ValueError, match="as the receipt says"):
            t.commit({A: first, B: ONE[B]}, receipt, expected=expected)
        with pytest.raises(ValueError, match="as the receipt says"):
            t.commit(contents, replace(receipt, files=(first,)), expected=expected)
        t.commit(contents, receipt, expected=expected)
        expected = digests(at, *ONE)
        with pytest.raises(IntegrityError, match="was patched by another run"):
            t.commit({A: first}, None, expected=expected)
        with pytest.raises(ValueError, match="as the receipt says"):
            t.commit(contents, replace(receipt, files=(first,)), expected=expected)
        with pytest.raises(ValueError, match="pending"):
            started = replace(receipt, files=(), pending=(pending_of(at),))
            t.commit(contents, started, expected=expected)
        assert second.original == ORIGINAL[B]
    assert interrupted(at) is None


def pending_of(at: Installation) -> Any:
    from vllm_eagle3_patches.receipt import Pending

    return Pending(RECEIPT, None, 0o644, None, None)


def test_only_inside_the_with_block(at: Installation) -> None:
    transaction = Transaction(at)
    with pytest.raises(AssertionError):
        transaction.commit({}, None, expected={})
    with transaction:
        pass
    with pytest.raises(AssertionError):
        transaction.recover()


# What others have left behind


def test_a_symlink_in_the_place_of_the_temporary_file_is_not_followed(
    at: Installation, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    files.temporary(at.root / A).symlink_to(precious)
    commit(at, ONE)
    assert precious.read_bytes() == b"precious"
    assert (at.root / A).read_bytes() == ONE[A]
    assert not (at.root / A).is_symlink()


def test_a_symlink_put_there_at_the_last_moment_is_not_followed(
    at: Installation, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")

    def hook(n: int, name: str, args: tuple[Any, ...], call: Any) -> Any:
        if args[0] == files.temporary(at.root / A):
            args[0].symlink_to(precious)
        return call()

    with hooked(hook, "open"), pytest.raises(WriteError, match=r"\(EEXIST\); nothing was changed"):
        commit(at, ONE)
    assert precious.read_bytes() == b"precious"


def test_bytecode_made_by_another_process_at_the_last_moment(at: Installation) -> None:
    def hook(n: int, name: str, args: tuple[Any, ...], call: Any) -> Any:
        if args[1] == at.root / A:
            compile_all(at.root)
        return call()

    with hooked(hook, "replace"):
        commit(at, {A: ONE[A]})
    assert list(at.root.rglob("c.*.pyc"))
    assert stale(at.root) == []


def test_a_folder_in_the_place_of_the_temporary_file(at: Installation) -> None:
    blocker = files.temporary(at.root / A)
    blocker.mkdir()
    before = tree(at.root)
    with pytest.raises(WriteError) as caught:
        commit(at, ONE)
    assert str(blocker) == caught.value.where
    blocker.rmdir()
    recover(at)
    del before[str(blocker.relative_to(at.root))]
    assert tree(at.root) == before


def test_row_without_receipt(at: Installation) -> None:
    before = tree(at.root)
    ours = f"{at.dist_info.name}/{RECEIPT}"
    at.record_path.write_bytes(Record.read(at.record_path).with_row(ours))
    found = interrupted(at)
    assert found is not None
    assert "RECORD lists" in found
    with pytest.raises(IntegrityError, match="RECORD lists"):
        commit(at, ONE)
    assert recover(at) == [f"removed the row of {RECEIPT} in {at.record_path}"]
    assert tree(at.root) == before
    assert interrupted(at) is None


def test_receipt_without_row(at: Installation) -> None:
    record = at.record_path.read_bytes()
    commit(at, ONE)
    before = tree(at.root)
    at.record_path.write_bytes(record)
    found = interrupted(at)
    assert found is not None
    assert "does not list it" in found
    assert recover(at) == [f"added the row of {RECEIPT} in {at.record_path}"]
    assert tree(at.root) == before


def test_a_row_with_a_hash_is_somebody_elses(at: Installation) -> None:
    """As tools write that make RECORD anew from what they find."""
    commit(at, ONE)
    rows = at.record_path.read_bytes().replace(f"{RECEIPT},,".encode(), f"{RECEIPT},x=y,9".encode())
    at.record_path.write_bytes(rows)
    assert interrupted(at) is None
    commit(at, {})
    assert at.record_path.read_bytes() == rows
    assert interrupted(at) is None
    commit(at, ONE)
    assert interrupted(at) is None


@pytest.mark.parametrize("name", ["RECORD", RECEIPT])
def test_temporary_files(at: Installation, name: str) -> None:
    before = tree(at.root)
    left = files.temporary(at.dist_info / name)
    left.write_bytes(b"half")
    found = interrupted(at)
    assert found is not None
    assert str(left) in found
    assert recover(at) == [f"removed the temporary file {left}"]
    assert tree(at.root) == before


def interrupt(at: Installation, new: dict[str, bytes], after: str) -> None:
    """Ends a run for `new` once `after` is in its place."""

    def child() -> None:
        def hook(n: int, name: str, args: tuple[Any, ...], call: Any) -> Any:
            call()
            if args[1] == at.root / after:
                os._exit(77)

        with hooked(hook, "replace"):
            commit(at, new)

    assert os.waitstatus_to_exitcode(in_child(child)) == 77


def test_an_interrupted_run_is_put_back(at: Installation) -> None:
    commit(at, ONE)
    before = tree(at.root)
    interrupt(at, TWO, A)
    found = interrupted(at)
    assert found is not None
    assert found.startswith("vllm-eagle3-patch 0.1.0 was interrupted while changing")
    for name in (A, B, C):
        assert name in found
    mid = tree(at.root)
    with pytest.raises(IntegrityError, match="was interrupted while changing"):
        commit(at, TWO)
    assert tree(at.root) == mid
    assert recover(at) == [
        f"removed the temporary file {files.temporary(at.dist_info / RECEIPT)}",
        f"removed the temporary file {files.temporary(at.root / B)}",
        f"removed the temporary file {files.temporary(at.root / C)}",
        f"put back {at.root / A}",
        f"put back {at.dist_info / RECEIPT}",
    ]
    assert tree(at.root) == before
    assert interrupted(at) is None


@pytest.mark.parametrize("name", [A, B, C])
def test_a_file_edited_since_stops_the_recovery(at: Installation, name: str) -> None:
    commit(at, ONE)
    interrupt(at, TWO, B)
    mine = (at.root / name).read_bytes() + b"# mine\n"
    (at.root / name).unlink()
    (at.root / name).write_bytes(mine)
    before = everything(at)
    with pytest.raises(IntegrityError, match=f"{name} was changed by someone else") as caught:
        recover(at)
    assert caught.value.where == str(at.root / name)
    assert everything(at) == before


def test_a_damaged_record_stops_the_recovery(at: Installation) -> None:
    interrupt(at, ONE, A)
    at.record_path.write_bytes(b"a,b\n")
    before = everything(at)
    with pytest.raises(IntegrityError, match="RECORD"):
        recover(at)
    assert everything(at) == before


def test_a_damaged_receipt_stops_everything(at: Installation) -> None:
    commit(at, ONE)
    (at.dist_info / RECEIPT).write_bytes(b"{")
    before = everything(at)
    for action in (interrupted, recover, lambda at: commit(at, TWO)):
        with pytest.raises(IntegrityError, match="garbled"):
            action(at)
    assert everything(at) == before


def test_a_receipt_that_names_a_file_outside_stops_the_recovery(
    at: Installation, tmp_path: Path
) -> None:
    """The receipt's own check does not see where links lead."""
    interrupt(at, ONE, A)
    shutil.move(at.root / "vllm/models", tmp_path / "elsewhere")
    (at.root / "vllm/models").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PatchError):
        recover(at)
    assert (tmp_path / "elsewhere/b.py").is_symlink()


def test_a_second_failure_is_told(at: Installation) -> None:
    before = tree(at.root)

    def hook(n: int, name: str, args: tuple[Any, ...], call: Any) -> Any:
        if args[1] == at.root / B:
            raise OSError(errno.EIO, "Input/output error")
        if args[1] == at.root / A and (at.root / A).read_bytes() == ONE[A]:
            raise OSError(errno.EROFS, "Read-only file system")
        return call()

    with hooked(hook, "replace"), pytest.raises(WriteError) as caught:
        commit(at, ONE)
    for words in ("b.py cannot be replaced", "EIO", "failed too", "a.py", "EROFS", "half changed"):
        assert words in caught.value.what
    assert caught.value.where == str(at.root / A)
    assert interrupted(at) is not None
    recover(at)
    assert tree(at.root) == before


def test_bytecode_that_cannot_be_deleted_stops_the_run_before_any_file_changes(
    at: Installation,
) -> None:
    compile_all(at.root)
    before = everything(at)
    keep = next((at.root / "vllm/models/__pycache__").glob("b.*"))

    def hook(n: int, name: str, args: tuple[Any, ...], call: Any) -> Any:
        if args == (keep,):
            raise PermissionError(errno.EPERM, "Operation not permitted")
        return call()

    with hooked(hook, "unlink"), pytest.raises(WriteError, match="nothing was changed") as caught:
        commit(at, ONE)
    assert caught.value.where == str(keep)
    after = everything(at)
    for name in (A, B, C):
        assert after[at.root / name] == before[at.root / name]
    assert interrupted(at) is None


# Where nothing can be written


@pytest.fixture
def public(tmp_path: Path) -> Iterator[Installation]:
    """An installation that other users can reach, which they cannot below pytest's folder."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        at = fake_package(Path(name) / "site")
        (Path(name) / "cache/b.py").chmod(0o644)
        yield at


def as_somebody(action: Any) -> None:
    """Runs it as a user without any rights, and asserts that it went well."""

    def child() -> None:
        if os.geteuid() == 0:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
        action()

    assert in_child(child) == 0


@pytest.mark.parametrize("folder", ["vllm", "vllm/models", "vllm-0.17.1.dist-info"])
def test_a_folder_without_permission(public: Installation, folder: str) -> None:
    for path in (public.root, *public.root.rglob("*")):
        if path.is_dir():
            path.chmod(0o777)
    (public.root / folder).chmod(0o555)
    before = everything(public)

    def action() -> None:
        assert interrupted(public) is None
        with pytest.raises(WriteError) as caught:
            commit(public, ONE)
        assert "cannot be written: Permission denied (EACCES)" in caught.value.what
        assert caught.value.where == str(public.root / folder)
        assert caught.value.next == "run as a user who may write there"

    as_somebody(action)
    assert everything(public) == before


def test_a_user_who_may_write_in_the_folders_only(public: Installation) -> None:
    """The files stay root's, or become the user's own where only root can give them away."""
    for path in (public.root, *public.root.rglob("*")):
        if path.is_dir():
            path.chmod(0o777)

    def action() -> None:
        commit(public, {A: ONE[A]})
        assert (public.root / A).read_bytes() == ONE[A]
        assert stat.S_IMODE((public.root / A).stat().st_mode) == 0o444
        commit(public, {})

    before = tree(public.root)
    as_somebody(action)
    assert tree(public.root) == before


def test_recovery_without_permission(public: Installation) -> None:
    interrupt(public, ONE, A)
    (public.root / "vllm/models").chmod(0o555)
    (public.dist_info).chmod(0o777)
    before = everything(public)

    def action() -> None:
        assert interrupted(public) is not None
        with pytest.raises(WriteError, match="EACCES"):
            recover(public)

    as_somebody(action)
    assert everything(public) == before


def test_a_file_system_without_writing(at: Installation) -> None:
    before = everything(at)
    read_only = mock.Mock(f_flag=os.ST_RDONLY)
    with (
        mock.patch.object(os, "access", lambda *_: False),
        mock.patch.object(os, "statvfs", lambda *_: read_only),
        pytest.raises(WriteError, match=r"Read-only file system \(EROFS\)"),
    ):
        commit(at, ONE)
    with (
        mock.patch.object(os, "access", lambda *_: False),
        mock.patch.object(os, "statvfs", lambda *_: read_only),
    ):
        assert commit(at, {}) == []
    assert everything(at) == before


def test_no_dist_info(at: Installation) -> None:
    shutil.rmtree(at.dist_info)
    with pytest.raises(WriteError, match=r"cannot be locked: .*\(ENOENT\)"), Transaction(at):
        pass


def test_a_file_system_without_fsync_on_folders(at: Installation) -> None:
    real = os.fsync

    def fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "Invalid argument")
        real(fd)

    with mock.patch.object(os, "fsync", fsync):
        commit(at, ONE)
    assert (at.root / A).read_bytes() == ONE[A]


def test_the_mark_holds_everything_before_the_first_file_changes(at: Installation) -> None:
    """The order of the steps, seen from outside."""
    seen = []

    def hook(n: int, name: str, args: tuple[Any, ...], call: Any) -> Any:
        result = call()
        path = Path(args[1])
        seen.append(path.name)
        if path == at.dist_info / RECEIPT:
            receipt = receipt_of(at)
            seen.append("pending" if receipt.pending else "final")
        return result

    with hooked(hook, "replace"):
        commit(at, ONE)
    assert seen == ["RECORD", RECEIPT, "pending", "a.py", "b.py", RECEIPT, "final"]
    assert dump(receipt_of(at)) == (at.dist_info / RECEIPT).read_bytes()
    assert {f.before for f in receipt_of(at).files} == {sha256(ORIGINAL[A]), sha256(ORIGINAL[B])}
    assert isinstance(receipt_of(at).files[0], PatchedFile)


# As the real installers lay it out


def wheel(folder: Path) -> Path:
    """A wheel of ORIGINAL."""
    path, info = folder / "vllm-0.17.1-py3-none-any.whl", "vllm-0.17.1.dist-info"
    content = {
        **ORIGINAL,
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: vllm\nVersion: 0.17.1\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [row(name, data) for name, data in content.items()]
    content[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,\n"]).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("installer", ["pip", "copy", "hardlink", "symlink"])
def test_installed_for_real(tmp_path: Path, installer: str) -> None:
    """The caches of the installers and their other environments stay as they are, and an
    uninstall takes along what apply has added."""
    built = wheel(tmp_path)
    pip = (sys.executable, "-m", "pip", "--python")
    uv = (sys.executable, "-m", "uv", "pip")
    offline = ("--offline", "--cache-dir", tmp_path / "uv-cache")
    trees = []
    for name in ("one", "two"):
        venv = tmp_path / name
        run(sys.executable, "-m", "venv", "--without-pip", venv)
        python = venv / "bin/python"
        if installer == "pip":
            run(*pip, python, "install", "--no-index", "--no-deps", "--no-compile", built)
        else:
            mode = ("--link-mode", installer, "--no-deps", "--no-index")
            run(*uv, "install", "--python", python, *mode, *offline, built)
        [site] = venv.glob("lib/python*/site-packages")
        trees.append((site, tree(site)))
    (site, pristine), (other, untouched) = trees
    cache = tree(tmp_path / "uv-cache")
    info = site / "vllm-0.17.1.dist-info"
    at = Installation("vllm", "0.17.1", site, site, info, False, installer)

    assert commit(at, ONE) == [A, B]
    assert commit(at, TWO) == [A, B, C]
    commit(at, {})
    assert tree(site) == pristine
    commit(at, ONE)
    interrupt(at, TWO, B)
    recover(at)
    assert (site / A).read_bytes() == ONE[A]
    assert tree(other) == untouched
    assert tree(tmp_path / "uv-cache") == cache

    python = tmp_path / "one/bin/python"
    if installer == "pip":
        run(*pip, python, "uninstall", "--yes", "vllm")
    else:
        run(*uv, "uninstall", "--python", python, *offline, "vllm")
    assert [path.name for path in site.iterdir() if path.name.startswith("vllm")] == []
    assert tree(tmp_path / "uv-cache") == cache
