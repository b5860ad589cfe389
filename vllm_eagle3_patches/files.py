# System calls stand here by their own names, as their order and failures are what counts:
# ruff: noqa: PTH105, PTH108, PTH114, PTH115, PTH116, PTH211
"""Reads and replaces one file at a time, never in place and never through a link.

A new file is written in full beside its place (`stage`), then takes that place by one rename
(`place`). So a hard link to the old file, as uv makes to its cache, keeps the old bytes.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vllm_eagle3_patches.errors import IntegrityError, WriteError
from vllm_eagle3_patches.sources import sha256

_NEXT = {
    errno.EACCES: "run as a user who may write there",
    errno.EPERM: "run as a user who may write there",
    errno.EROFS: "run where that file system can be written",
    errno.ENOSPC: "free some space on that file system",
    errno.EDQUOT: "free some space within your quota",
}


@dataclass(frozen=True)
class State:
    """One file as it is, or is to be.

    Attributes:
        data: its bytes, read through the link if it is one; None where there are none.
        mode: its permission bits; those of the file that a link leads to.
        link: the text of the link it is, or None.
    """

    data: bytes | None
    mode: int = 0o644
    link: str | None = None

    @property
    def digest(self) -> str | None:
        """sha256 of its bytes."""
        return None if self.data is None else sha256(self.data)


def read_state(path: Path) -> State:
    """The file at `path` as it is now.

    Raises:
        IntegrityError: what lies there is not a file.
        WriteError: it cannot be read.
    """
    with naming(path, "cannot be read"):
        link = os.readlink(path) if os.path.islink(path) else None
        try:
            mode = os.stat(path).st_mode
            if not stat.S_ISREG(mode):
                raise IntegrityError("this is not a regular file", where=path)
            return State(path.read_bytes(), stat.S_IMODE(mode), link)
        except FileNotFoundError:
            return State(None, link=link)


def reachable(path: Path, state: State) -> State:
    """`state`, as a regular file unless its link, lying at `path`, leads to the same bytes."""
    if state.link is None or state.data is None:
        return state
    target = path.parent / state.link
    with suppress(OSError):
        if target.is_file() and target.read_bytes() == state.data:
            return state
    return replace(state, link=None)


def temporary(path: Path) -> Path:
    """Where `stage` puts what is to lie at `path`."""
    return path.with_name(f".{path.name}.eagle3-patch.tmp")


def stage(path: Path, state: State) -> None:
    """Makes the file that `place` is to put at `path`, with its mode and, where the user may,
    the owner of what lies there now.

    Raises:
        WriteError: it cannot be written.
    """
    staged = temporary(path)
    with naming(path, "cannot be written"):
        discard(path)
        if state.link is not None:
            os.symlink(state.link, staged)
        elif state.data is not None:
            fd = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            try:
                rest = memoryview(state.data)
                while rest:
                    rest = rest[os.write(fd, rest) :]
                with suppress(OSError):
                    owner = os.lstat(path if os.path.lexists(path) else path.parent)
                    os.fchown(fd, owner.st_uid, owner.st_gid)
                os.fchmod(fd, state.mode)
                os.fsync(fd)
            finally:
                os.close(fd)


def place(path: Path, state: State) -> None:
    """Puts what was staged for `path` there, or removes it where `state` is no file.

    Raises:
        WriteError: the folder does not let it.
    """
    with naming(path, "cannot be replaced"):
        if state.data is None and state.link is None:
            delete(path)
        else:
            os.replace(temporary(path), path)


def put(path: Path, state: State) -> None:
    """`stage`, `place` and `sync`."""
    stage(path, state)
    place(path, state)
    sync([path.parent])


def discard(path: Path) -> bool:
    """Whether something was staged for `path`; it is gone now. Raises WriteError as `delete`."""
    return delete(temporary(path))


def delete(path: Path, what: str = "cannot be removed") -> bool:
    """Whether there was such a file; it is gone now.

    Raises:
        WriteError: it cannot be removed; in words, `what`.
    """
    with naming(path, what):
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True


def sync(folders: Iterable[Path]) -> None:
    """Makes the renames in these folders last through a power cut, where the file system can.

    Raises:
        WriteError: a disk fails.
    """
    for folder in sorted(set(folders)):
        with naming(folder, "cannot be synced"):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                    raise
            finally:
                os.close(fd)


def check_writable(folders: Iterable[Path]) -> None:
    """Raises WriteError: this user may not write in one of them."""
    for folder in sorted(set(folders)):
        if not os.access(folder, os.W_OK | os.X_OK):
            with naming(folder, "cannot be written"):
                read_only = os.statvfs(folder).f_flag & os.ST_RDONLY
                number = errno.EROFS if read_only else errno.EACCES
                raise OSError(number, os.strerror(number))


def try_lock(folder: Path) -> int | None:
    """The descriptor that holds the lock of `folder` until closed; None where another does.

    Raises:
        WriteError: the folder cannot be locked at all.
    """
    with naming(folder, "cannot be locked"):
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(folder)):
                return fd
        except BlockingIOError:
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None


@contextmanager
def naming(path: Path, what: str) -> Iterator[None]:
    """Turns an OSError into a WriteError that says which file it is, `what` of it, and why."""
    try:
        yield
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, "unknown")
        raise WriteError(
            f"{path.name} {what}: {error.strerror or error} ({name})",
            where=path,
            next=_NEXT.get(error.errno or 0),
        ) from error
