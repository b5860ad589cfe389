"""`survey` for an installation: its receipt, and whether its files are as they were installed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from vllm_eagle3_patches import integrity, survey
from vllm_eagle3_patches.errors import PatchError, RefusedError
from vllm_eagle3_patches.gates.base import State
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.interruption import interrupted, undisturbed
from vllm_eagle3_patches.receipt import RECEIPT, load
from vllm_eagle3_patches.sources import Sources
from vllm_eagle3_patches.survey import Row


@dataclass(frozen=True)
class Listing:
    """Every architecture of an installation.

    Attributes:
        state: of the installation, as in `operations.Report`.
        rows: one for each architecture, in the registry's order.
        problem: why files cannot be trusted, or None.
        notes: sentences a person should read.
    """

    state: str
    rows: tuple[Row, ...] = ()
    problem: PatchError | None = None
    notes: tuple[str, ...] = ()

    @property
    def exit(self) -> int:
        return self.problem.exit if self.problem is not None else 0

    @property
    def counts(self) -> dict[State, int]:
        return Counter(row.state for row in self.rows)


@undisturbed
def of(installation: Installation, *, allow_modified: bool = False) -> Listing:
    """The listing; writes nothing.

    Raises:
        PatchError: registry, receipt or RECORD cannot be read.
    """
    left = interrupted(installation)
    if left is not None:
        return Listing("interrupted", problem=integrity.interruption(installation, left))
    receipt = load(installation.dist_info / RECEIPT)
    changed = integrity.disagreeing(installation, receipt)
    if changed:
        return Listing("foreign", problem=integrity.disagreement(installation, changed))
    current = pristine = Sources(installation.root)
    patched = None
    if receipt is not None:
        pristine = current.with_overlay({file.path: file.original for file in receipt.files})
        paths = frozenset(file.path for file in receipt.files)
        patched = survey.Patched(current, receipt.targets, paths)
    try:
        rows = tuple(survey.rows(pristine, installation.version, patched))
    except RefusedError as error:
        raise integrity.cause(installation, pristine, error, allow_modified) from None
    state = "patched" if receipt else "editable" if installation.editable else "pristine"
    read = sorted({path for row in rows for path in row.rests_on})
    strange = integrity.foreign(installation, pristine, read)
    if not strange:
        return Listing(state, rows)
    if allow_modified:
        return Listing("foreign", rows, None, (f"not as installed: {', '.join(strange)}",))
    names = {path: path.partition(" (")[0] for path in strange}
    judged = tuple(_judged(row, names) for row in rows)
    if judged == rows:  # they touch only what needs nothing
        return Listing("foreign", rows, None, (f"not as installed: {', '.join(strange)}",))
    return Listing("foreign", judged, integrity.foreign_error(installation, strange))


def _judged(row: Row, strange: dict[str, str]) -> Row:
    """A row that would be edited, or is refused, is not trusted where it rests on a file that
    someone changed."""
    if row.state not in (State.CLOSED, State.REFUSED):
        return row
    hit = [said for said, path in strange.items() if path in row.rests_on]
    if not hit:
        return row
    path = strange[hit[0]]
    detail = f"not as installed: {', '.join(hit)}"
    return replace(row, state=State.REFUSED, gates=(), file=path, line=None, detail=detail)
