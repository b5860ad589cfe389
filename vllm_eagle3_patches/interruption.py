"""Tells, reading only, whether a run was cut off before it had changed all it meant to, and
whether one changed what was being read."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from vllm_eagle3_patches import files
from vllm_eagle3_patches.errors import PatchError, WriteError
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.receipt import RECEIPT, load
from vllm_eagle3_patches.record import Record

AT_WORK = "another run of vllm-eagle3-patch is at work here"
TRIES = 3
P = ParamSpec("P")
T = TypeVar("T")


def interrupted(installation: Installation) -> str | None:
    """What an interrupted run left here, in words; None where all is well.

    Not for use inside a `Transaction`: its own lock would count as another run at work.

    Raises:
        IntegrityError: the receipt or RECORD is damaged.
    """
    found = left_over(installation)
    if found is None:
        return None
    try:
        fd = files.try_lock(installation.dist_info)
    except WriteError:
        return found
    if fd is None:
        return AT_WORK
    try:
        return left_over(installation)  # the run at work may have ended since
    finally:
        os.close(fd)


def left_over(installation: Installation) -> str | None:
    """As `interrupted`, but a run still at work counts too."""
    receipt = load(installation.dist_info / RECEIPT)
    if receipt is not None and receipt.pending:
        names = ", ".join(entry.path for entry in receipt.pending if entry.path != RECEIPT)
        return f"vllm-eagle3-patch {receipt.tool_version} was interrupted while changing {names}"
    row = row_of(installation)
    record = Record.read(installation.record_path)
    if receipt is None and record.without_row(row) != record.data:
        return f"a run was interrupted: RECORD lists {RECEIPT}, which is not there"
    if receipt is not None and not record.owns(row):
        return f"a run was interrupted: {RECEIPT} is there, but RECORD does not list it"
    for path in (record.path, installation.dist_info / RECEIPT):
        if os.path.lexists(files.temporary(path)):
            return f"a run was interrupted: it left {files.temporary(path)}"
    return None


def row_of(installation: Installation) -> str:
    """The path of the receipt in RECORD."""
    return f"{installation.dist_info.name}/{RECEIPT}"


def undisturbed(
    read: Callable[Concatenate[Installation, P], T],
) -> Callable[Concatenate[Installation, P], T]:
    """The function, which reads files of an installation, once more where a run changed some
    meanwhile: neither what it found then nor what it raised is true of the files as they are.

    It raises WriteError where that happened each of `TRIES` times.
    """

    @wraps(read)
    def again(installation: Installation, /, *args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(TRIES):
            before = _last_change(installation)
            try:
                found = read(installation, *args, **kwargs)
            except PatchError:
                if _last_change(installation) == before:
                    raise
            else:
                if _last_change(installation) == before:
                    return found
        raise at_work(installation)

    return again


def at_work(installation: Installation) -> WriteError:
    return WriteError(
        AT_WORK,
        where=installation.dist_info,
        next="wait until it has ended, then run the command again",
    )


def _last_change(installation: Installation) -> int:
    """When a run last put a file into the dist-info folder: it begins and ends with that."""
    try:
        return installation.dist_info.stat().st_mtime_ns
    except OSError:
        return 0
