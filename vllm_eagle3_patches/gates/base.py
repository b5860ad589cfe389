"""The vocabulary of gates: states, findings, edits, and what a gate module offers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from vllm_eagle3_patches.sources import Sources
from vllm_eagle3_patches.target import Target


class State(str, Enum):
    """The stable codes of a gate's state; `n/a` where a target does not meet the gate."""

    NATIVE = "native"
    OPEN = "open"
    CLOSED = "closed"
    REFUSED = "refused"
    NOT_APPLICABLE = "n/a"

    @property
    def passes(self) -> bool:
        return self in (State.NATIVE, State.OPEN, State.NOT_APPLICABLE)


@dataclass(frozen=True)
class Finding:
    """What a gate looks like in the installed source; `file` is relative, `line` counts from 1."""

    gate: str
    state: State
    file: str | None = None
    line: int | None = None
    detail: str = ""


_WORST_FIRST = (State.REFUSED, State.CLOSED, State.NATIVE, State.OPEN, State.NOT_APPLICABLE)


def worst(findings: Iterable[Finding]) -> Finding:
    """The finding that decides where a target is built in several ways, the first of its kind."""
    return min(findings, key=lambda finding: _WORST_FIRST.index(finding.state))


@dataclass(frozen=True)
class Edit:
    """One change to one file, made by one codemod.

    Attributes:
        name: the stem of its patch file in a series.
        gate: the gate it opens.
        path: the file, relative to the folder that holds `vllm/`.
        scopes: the top-level classes the change may touch, beside imports.
        codemod: the module under `codemods/` whose `transform` makes the change.
        arguments: keyword arguments for `transform`.
    """

    name: str
    gate: str
    path: str
    scopes: tuple[str, ...]
    codemod: str
    arguments: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def call(self) -> str:
        """The codemod and its arguments in words, as the header of a pinned patch holds them."""
        given = ", ".join(f"{name}={value}" for name, value in sorted(self.arguments.items()))
        return f"{self.codemod}({given})"


class Gate(Protocol):
    """What each module in this folder offers."""

    NAME: str

    def inspect(self, sources: Sources, target: Target) -> Finding:
        """The gate's state: native when it holds, closed when it does not, refused, or n/a."""

    def edits(self, sources: Sources, target: Target) -> list[Edit]:
        """The edits that open the gate when it is closed; none where it is native."""
