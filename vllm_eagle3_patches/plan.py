"""What is to be written: findings on the installed source, edits, and the proven new bytes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from vllm_eagle3_patches import series
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates import GATES, NAMES
from vllm_eagle3_patches.gates.base import Edit, Finding, Gate, State
from vllm_eagle3_patches.sources import Sources, decode, encode
from vllm_eagle3_patches.target import Target


@dataclass(frozen=True)
class Plan:
    """The edits for some targets, and what the pristine files become.

    Attributes:
        source: "series", "codemod", or "none" where there is nothing to change.
        edits: in the order of the gates.
        after: path -> new bytes, for each file that changes.
    """

    source: str
    edits: tuple[Edit, ...]
    after: dict[str, bytes]


def _inspect(gate: Gate, sources: Sources, target: Target) -> Finding:
    """The gate's finding, kept with the view: it does not change, and is asked for repeatedly."""
    key = (gate.NAME, target)
    if key not in sources.memo:
        sources.memo[key] = _inspect_once(gate, sources, target)
    found: Finding = sources.memo[key]
    return found


def _inspect_once(gate: Gate, sources: Sources, target: Target) -> Finding:
    try:
        return gate.inspect(sources, target)
    except RefusedError as error:
        return Finding(gate.NAME, State.REFUSED, detail=f"{error.what} ({error.where})")
    except RecursionError:
        return Finding(gate.NAME, State.REFUSED, detail="a file is nested too deeply to be read")


def findings(sources: Sources, target: Target) -> list[Finding]:
    """Each gate's state as the source has it; `closed` only says that it does not hold."""
    return [_inspect(gate, sources, target) for gate in GATES]


def edits_for(sources: Sources, target: Target, gates: Collection[str] = NAMES) -> list[Edit]:
    """The edits of the closed gates among `gates`; none of a gate that cannot name its own."""
    edits: list[Edit] = []
    for gate in GATES:
        if gate.NAME in gates and _inspect(gate, sources, target).state is State.CLOSED:
            with suppress(RefusedError):
                edits += _edits(gate, sources, target)
    return edits


def _edits(gate: Gate, sources: Sources, target: Target) -> tuple[Edit, ...]:
    """The gate's edits, kept with the view as its finding is.

    Raises:
        RefusedError: the gate cannot name them.
    """
    key = ("edits", gate.NAME, target)
    try:
        if key not in sources.memo:
            sources.memo[key] = tuple(gate.edits(sources, target))
    except RecursionError:
        raise RefusedError("a file of the target is nested too deeply to be read") from None
    found: tuple[Edit, ...] = sources.memo[key]
    return found


def verified(
    current: Sources, pristine: Sources, target: Target, edits: list[Edit], hint: str
) -> list[Finding]:
    """The current findings, `closed` only where we know how to open the gate, else `refused`.

    `edits` are those that the pristine sources need.
    """
    found = findings(current, target)
    if State.CLOSED not in {f.state for f in found} or series.find(pristine, edits, hint):
        return found
    refused = _refusals(pristine, edits)
    return [
        replace(f, state=State.REFUSED, detail=refused[f.gate])
        if f.state is State.CLOSED and f.gate in refused
        else f
        for f in found
    ]


def _refusals(sources: Sources, edits: Iterable[Edit]) -> dict[str, str]:
    """Gate -> why its edit cannot be made, by trying each edit on its own."""
    from vllm_eagle3_patches import codemods

    refused: dict[str, str] = {}
    for edit in edits:
        try:
            codemods.apply(decode(sources.data(edit.path), edit.path), [edit], edit.path)
        except RefusedError as error:
            refused.setdefault(edit.gate, error.what)
    return refused


def make(
    sources: Sources, targets: Sequence[Target], hint: str, gates: Collection[str] = NAMES
) -> Plan:
    """The plan that opens `gates` for all targets, starting from pristine `sources`.

    Raises:
        RefusedError: a gate is refused for a target, or a proof fails.
    """
    from vllm_eagle3_patches import proofs  # `check` does without them

    edits: list[Edit] = []
    for gate in (g for g in GATES if g.NAME in gates):
        for target in sorted(targets, key=lambda t: t.request.key):
            finding = _inspect(gate, sources, target)
            if finding.state is State.REFUSED:
                raise _refusal(finding)
            if finding.state is State.CLOSED:
                edits += [e for e in _edits(gate, sources, target) if e not in edits]
    if not edits:
        return Plan("none", (), {})
    pinned = series.find(sources, edits, hint)
    after = pinned.apply(sources, edits) if pinned else _by_codemods(sources, edits)
    for path, data in after.items():
        proofs.compiles(path, data)
    _gates_hold(sources.with_overlay(after), targets, gates)
    return Plan("series" if pinned else "codemod", tuple(edits), after)


def _by_codemods(sources: Sources, edits: Sequence[Edit]) -> dict[str, bytes]:
    after = {}
    for path in dict.fromkeys(edit.path for edit in edits):
        before = sources.data(path)
        new = _edited(path, before, tuple(edit for edit in edits if edit.path == path))
        if new != before:
            after[path] = new
    return after


@lru_cache(maxsize=64)  # a pure function, and many architectures share a decoder's file
def _edited(path: str, before: bytes, edits: tuple[Edit, ...]) -> bytes:
    """One file's new bytes, proven; raises RefusedError as the codemods and the proofs do."""
    from vllm_eagle3_patches import codemods, proofs

    new = encode(codemods.apply(decode(before, path), edits, path), like=before)
    if new != before:
        proofs.codemods_settled(path, before, new, edits)
    return new


def _gates_hold(sources: Sources, targets: Iterable[Target], gates: Collection[str]) -> None:
    """Every gate asked for passes on the new bytes; the classes are looked up in them again."""
    from vllm_eagle3_patches.target import find

    for target in targets:
        again = find(sources, target.request, "")
        for gate in (g for g in GATES if g.NAME in gates):
            finding = _inspect(gate, sources, again)
            if not finding.state.passes:
                raise RefusedError(
                    f"gate {finding.gate} would still be {finding.state.value} after the edits: "
                    f"{finding.detail}",
                    where=finding.file,
                )


def _refusal(finding: Finding) -> RefusedError:
    place = f"{finding.file}:{finding.line}" if finding.line else finding.file
    return RefusedError(
        f"gate {finding.gate} is refused: {finding.detail}",
        where=place,
        next="nothing was changed; if this is a fork or a newer vLLM, report it with this message",
    )
