"""What can go wrong, as exceptions that carry the exit code of the command."""

from __future__ import annotations

from typing import ClassVar


class PatchError(Exception):
    """A failure the user has to know of: what was found, where, and what to do next.

    Attributes:
        what: what was found, one sentence.
        where: the file, folder or option it concerns, or None.
        next: the next step for the user, or None.
        exit: the exit code the command ends with.
    """

    exit: ClassVar[int] = 1

    def __init__(self, what: str, *, where: object = None, next: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.where = None if where is None else str(where)
        self.next = next

    def __str__(self) -> str:
        lines = [self.what]
        if self.where is not None:
            lines.append(f"  where: {self.where}")
        if self.next is not None:
            lines.append(f"  next:  {self.next}")
        return "\n".join(lines)


class UsageError(PatchError):
    """The command line, or a file it names, cannot be used."""

    exit = 2


class RefusedError(PatchError):
    """A structure or version is not recognised exactly, so nothing is edited."""

    exit = 3


class IntegrityError(PatchError):
    """Files were changed by someone else, disagree with the receipt, or a run was interrupted."""

    exit = 4


class InstallationError(PatchError):
    """There is no vLLM to work on, or more than one."""

    exit = 5


class WriteError(PatchError):
    """The installation cannot be written: permissions, space, or a lock held by another run."""

    exit = 6
