"""Takes the files of one installation from one state to the next: whole, or not at all.

The order in which `Transaction.commit` writes, every change a rename or a removal:

1. RECORD gets the row of the receipt, unless it has it.
2. The receipt becomes a pending one: it holds every file to change, as it is now.
3. Each new file, the next receipt and the next RECORD are written in full beside their places
   and synced. All the disk space that the run needs is taken before any file changes.
4. Each new file takes its place, and the bytecode of the old one goes.
5. RECORD loses its row, where the receipt is to go.
6. The next receipt takes its place, or the receipt goes: this alone makes the change valid.

What lies on disk after a run was cut off tells how far it came, and `recover` puts everything
back as it was before 1. A run that fails does the same at once.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from vllm_eagle3_patches import bytecode, files
from vllm_eagle3_patches.errors import IntegrityError, WriteError
from vllm_eagle3_patches.files import State, read_state
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.interruption import interrupted, left_over, row_of
from vllm_eagle3_patches.receipt import RECEIPT, PatchedFile, Pending, Receipt, dump, load
from vllm_eagle3_patches.record import Record
from vllm_eagle3_patches.sources import sha256

__all__ = ["State", "Transaction", "interrupted", "read_state"]


@dataclass(frozen=True)
class _Change:
    name: str  # "vllm/…", RECEIPT or RECORD
    path: Path
    before: State
    after: State

    def make(self) -> bool:
        """Whether there was anything to do."""
        if self.before != self.after:
            files.put(self.path, self.after)
        return self.before != self.after

    def pending(self) -> Pending:
        before = self.before
        return Pending(self.name, before.data, before.mode, before.link, self.after.digest)


class Transaction:
    """`with Transaction(installation) as t:` holds the lock of the installation.

    Plan inside the block, after `recover`: only then does no other run change what was read.
    """

    def __init__(self, installation: Installation, timeout: float = 10) -> None:
        """`timeout` is how many seconds to wait for another run to end."""
        self._installation = installation
        self._dist_info = installation.dist_info
        self._timeout = timeout
        self._fd: int | None = None

    def __enter__(self) -> Transaction:
        """Raises WriteError: another run holds the lock, or there can be none."""
        deadline = time.monotonic() + self._timeout
        while (fd := files.try_lock(self._dist_info)) is None:
            if time.monotonic() >= deadline:
                raise WriteError(
                    "another run of vllm-eagle3-patch holds this installation "
                    f"(waited {self._timeout:g} s)",
                    where=self._dist_info,
                    next="run the command again when that one has ended",
                )
            time.sleep(0.02)
        self._fd = fd
        return self

    def __exit__(self, *_: object) -> None:
        if self._fd is not None:
            with suppress(OSError):  # it is closed, and the lock free, all the same
                os.close(self._fd)
            self._fd = None

    def recover(self) -> list[str]:
        """Undoes what an interrupted run has left; says what it did, a sentence each.

        Raises:
            IntegrityError: a file is neither as it was before that run nor as that run wrote
                it, or the receipt or RECORD is damaged; nothing is touched then.
            WriteError: something cannot be written; the next `recover` goes on from there.
        """
        assert self._fd is not None, "recover belongs inside the with block"
        return self._undo(killed=True)

    def commit(
        self,
        contents: Mapping[str, bytes | PatchedFile],
        receipt: Receipt | None,
        *,
        expected: Mapping[str, str | None],
    ) -> list[str]:
        """Brings the files named in `contents` to these bytes, and the receipt to this one.

        A PatchedFile stands for its original: bytes, mode, and link if that still leads to
        these bytes. With None for the receipt, it and its RECORD row are gone after.
        `expected` has the sha256 (None: no file) of each file in `contents` as the plan saw it,
        and may have those of others. Writes nothing where nothing would change; the version of
        the tool in the receipt does not count.

        Returns:
            The names of the files that changed.

        Raises:
            IntegrityError: a file is not as `expected`, one patched before is neither restored
                nor in the receipt, an interrupted run is found, or the receipt or RECORD is
                damaged.
            WriteError: something cannot be written. All is as before, or the message says that
                putting it back failed too, which the next `recover` then does.
            ValueError: the arguments contradict each other.
        """
        assert self._fd is not None, "commit belongs inside the with block"
        if (found := left_over(self._installation)) is not None:
            again = "run apply or revert: it first puts back what that run has changed"
            raise IntegrityError(found, where=self._dist_info, next=again)
        old = load(self._dist_info / RECEIPT)
        changes = self._changes(contents, expected)
        _check_agreement(contents, old, receipt)
        if not changes and _same(old, receipt):
            return []
        files.check_writable([self._dist_info, *(change.path.parent for change in changes)])
        try:
            self._write(changes, old, receipt)
        except BaseException as error:
            self._roll_back(error)
        return [change.name for change in changes]

    def _changes(
        self, contents: Mapping[str, bytes | PatchedFile], expected: Mapping[str, str | None]
    ) -> list[_Change]:
        """Raises IntegrityError: a file is not as expected; ValueError: one is not in there."""
        if not contents.keys() <= expected.keys():
            raise ValueError("a file in contents is not in expected")
        changes = []
        for name, digest in expected.items():
            path = self._installation.path(name)
            now = read_state(path)
            if now.digest != digest:
                raise IntegrityError(
                    f"{name} was changed by someone else during this run; nothing was changed",
                    where=path,
                    next="run the command again",
                )
            content = contents.get(name, now.data)
            if isinstance(content, PatchedFile):
                then = files.reachable(path, State(content.original, content.mode, content.link))
            else:
                then = now if content == now.data else State(content, now.mode)
            if then != now:
                changes.append(_Change(name, path, now, then))
        return changes

    def _write(self, changes: list[_Change], old: Receipt | None, new: Receipt | None) -> None:
        """The steps 1 to 6."""
        own = self._own_change(new)
        if changes or new is not None:
            self._row_change(listed=True).make()
        if changes and (mark := new or old):
            pending = tuple(change.pending() for change in (own, *changes))
            started = dump(replace(mark, files=(), pending=pending))
            files.put(own.path, State(started, own.before.mode))
        row = [] if new is not None else [self._row_change(listed=False)]
        for change in (*changes, *row, own):
            files.stage(change.path, change.after)
        for change in changes:
            bytecode.remove(change.path)  # shows what cannot be deleted before any file changes
        for change in changes:
            files.place(change.path, change.after)
            bytecode.remove(change.path)
        files.sync(change.path.parent for change in changes)
        for change in row:
            files.place(change.path, change.after)
            files.sync([change.path.parent])
        files.place(own.path, own.after)
        with suppress(WriteError):  # valid now; at worst a power cut could still undo it
            files.sync([own.path.parent])

    def _undo(self, *, killed: bool) -> list[str]:
        """As `recover`; but not after a kill, only the files put back lose their bytecode."""
        if left_over(self._installation) is None:
            return []
        receipt = load(self._dist_info / RECEIPT)
        pending = receipt.pending if receipt else ()
        before = next((entry for entry in pending if entry.path == RECEIPT), None)
        undone = [self._undoing(entry) for entry in pending if entry is not before]
        listed = receipt is not None if before is None else before.previous is not None
        row = self._row_change(listed=listed)
        files.check_writable([self._dist_info, *(change.path.parent for change in undone)])

        done = []
        for path in (row.path, self._dist_info / RECEIPT, *(change.path for change in undone)):
            if files.discard(path):
                done.append(f"removed the temporary file {files.temporary(path)}")
        for change in undone:
            if changed := change.make():
                done.append(f"put back {change.path}")
            if changed or killed:
                bytecode.remove(change.path)
        # A receipt that was not there goes first: RECORD may need the space.
        if before is not None and not listed:
            self._finish(State(None), done)
        if row.make():
            done.append(f"{'added' if listed else 'removed'} the row of {RECEIPT} in {row.path}")
        if before is not None and listed:
            self._finish(State(before.previous, before.mode, before.link), done)
        return done

    def _finish(self, receipt: State, done: list[str]) -> None:
        path = self._dist_info / RECEIPT
        files.stage(path, receipt)
        files.place(path, receipt)
        done.append(f"{'removed' if receipt.data is None else 'put back'} {path}")
        with suppress(WriteError):  # valid now; at worst a power cut could still undo it
            files.sync([path.parent])

    def _undoing(self, entry: Pending) -> _Change:
        """Raises IntegrityError: the file is neither as it was nor as that run wrote it."""
        path = self._installation.path(entry.path)
        now, then = read_state(path), State(entry.previous, entry.mode, entry.link)
        if now.digest not in (then.digest, entry.next):
            raise IntegrityError(
                f"a run was interrupted, and {entry.path} was changed by someone else since",
                where=path,
                next="put that file aside, reinstall this vLLM, and run the command again",
            )
        return _Change(entry.path, path, now, files.reachable(path, then))

    def _roll_back(self, error: BaseException) -> NoReturn:
        """Raises `error`, once everything is as before."""
        try:
            self._undo(killed=False)
        except Exception as second:
            raise WriteError(
                f"{getattr(error, 'what', repr(error))}; putting everything back failed too "
                f"({getattr(second, 'what', repr(second))}), so the installation is half changed",
                where=getattr(second, "where", self._dist_info),
                next="remove the cause and run the command again: it puts everything back first",
            ) from error
        if isinstance(error, WriteError):
            what = f"{error.what}; nothing was changed"
            raise WriteError(what, where=error.where, next=error.next) from error
        raise error

    def _own_change(self, new: Receipt | None) -> _Change:
        path = self._dist_info / RECEIPT
        now = read_state(path)
        if now.data is None:  # as readable as its neighbour
            now = replace(now, mode=read_state(self._installation.record_path).mode)
        then = State(None) if new is None else State(dump(new), now.mode)
        return _Change(RECEIPT, path, now, then)

    def _row_change(self, *, listed: bool) -> _Change:
        path = self._installation.record_path
        record = Record.read(path)
        row = row_of(self._installation)
        data = record.with_row(row) if listed else record.without_row(row)
        now = read_state(path)
        return _Change("RECORD", path, now, now if data == now.data else State(data, now.mode))


def _same(old: Receipt | None, new: Receipt | None) -> bool:
    if old is None or new is None:
        return old is new
    return replace(new, tool_version=old.tool_version) == old


def _check_agreement(
    contents: Mapping[str, bytes | PatchedFile], old: Receipt | None, new: Receipt | None
) -> None:
    """Raises ValueError: `new` does not tell of `contents`; IntegrityError: nor of an original."""
    if contents and new is None and old is None:
        raise ValueError("a change needs a receipt")
    if new is not None and new.pending:
        raise ValueError("a receipt that is pending is not for the caller to write")
    originals = {file.path: file.before for file in old.files} if old else {}
    patched = {file.path: file.after for file in new.files} if new else {}
    for name in originals.keys() - patched.keys() - contents.keys():
        raise IntegrityError(
            f"{name} was patched by another run meanwhile; nothing was changed",
            next="run the command again",
        )
    for name, content in contents.items():
        digest = content.before if isinstance(content, PatchedFile) else sha256(content)
        if digest != patched.get(name, originals.get(name)):
            raise ValueError(f"{name} would not be as the receipt says")
