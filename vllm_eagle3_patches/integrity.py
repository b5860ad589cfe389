"""Whether the files of an installation are as they were installed, or as we left them."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from vllm_eagle3_patches import plan
from vllm_eagle3_patches.errors import IntegrityError, PatchError, RefusedError
from vllm_eagle3_patches.files import read_state
from vllm_eagle3_patches.gates.base import Edit, Finding, State
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.interruption import AT_WORK, at_work
from vllm_eagle3_patches.receipt import Receipt
from vllm_eagle3_patches.record import Record
from vllm_eagle3_patches.sources import Sources, sha256
from vllm_eagle3_patches.target import Target


def disagreeing(installation: Installation, receipt: Receipt | None) -> list[str]:
    """The files that are neither as we left them nor as they were installed."""
    files = receipt.files if receipt else ()
    return [
        file.path
        for file in files
        if read_state(installation.path(file.path)).digest not in (file.after, file.before)
    ]


def disagreement(installation: Installation, paths: list[str]) -> IntegrityError:
    return IntegrityError(
        f"changed by someone else since we patched it: {', '.join(paths)}",
        where=installation.root,
        next="vllm-eagle3-patch revert --force: puts the originals back and keeps a copy of "
        "the changed files; or reinstall vLLM",
    )


def foreign(installation: Installation, sources: Sources, paths: Iterable[str]) -> list[str]:
    """The files whose bytes are not the ones RECORD says were installed; says why for each.

    An editable installation has no such record: nothing is foreign there.

    Raises:
        IntegrityError: RECORD is missing or damaged.
    """
    if installation.editable:
        return []
    record = Record.read(installation.record_path)
    found = []
    for path in paths:
        digest = record.sha256(path)
        if not sources.exists(path):
            if record.owns(path):
                found.append(f"{path} (missing)")
        elif digest is None:
            found.append(f"{path} (RECORD has no hash for it)")
        elif digest != sha256(sources.data(path)):
            found.append(f"{path} (differs from RECORD)")
    return found


def interruption(installation: Installation, left: str) -> PatchError:
    """What `interrupted` found, as an error: a run still at work is waited for, not mended."""
    if left == AT_WORK:
        return at_work(installation)
    return IntegrityError(
        left,
        where=installation.dist_info,
        next="vllm-eagle3-patch apply, or vllm-eagle3-patch revert: either first puts back what "
        "the interrupted run changed",
    )


def foreign_error(installation: Installation, files: list[str]) -> IntegrityError:
    return IntegrityError(
        f"not as vLLM {installation.version} installed it, and not ours: {', '.join(files)}",
        where=installation.root,
        next=f"pip install --force-reinstall --no-deps {installation.distribution}"
        f"=={installation.version}; or, to edit the files as they are, "
        "vllm-eagle3-patch apply --allow-modified",
    )


def cause(
    installation: Installation, sources: Sources, error: RefusedError, allow_modified: bool
) -> PatchError:
    """The refusal; or that files were changed by someone else, where that may be why."""
    strange = [] if allow_modified else foreign(installation, sources, sources.asked_for())
    if not strange:
        return error
    blame = foreign_error(installation, strange)
    return IntegrityError(f"{blame.what}; {error.what}", where=error.where, next=blame.next)


def judged(sources: Sources, found: Iterable[Finding], edits: Iterable[Edit]) -> list[str]:
    """The files that the findings rest on, and those to be edited; where a gate is refused, all
    that was read."""
    if any(finding.state is State.REFUSED for finding in found):
        return sources.asked_for()
    paths = [*(finding.file for finding in found), *(edit.path for edit in edits)]
    return sorted({path for path in paths if path is not None})


def refuse_foreign(
    installation: Installation,
    pristine: Sources,
    targets: Iterable[Target],
    gates: Collection[str],
    ours: Collection[str],
    allow_modified: bool,
) -> None:
    """Raises IntegrityError: there is something to edit, and a file that matters is foreign."""
    paths: set[str] = set()
    for target in targets:
        edits = plan.edits_for(pristine, target, gates)
        found = [f for f in plan.findings(pristine, target) if f.gate in gates]
        paths.update(judged(pristine, found, edits) if edits else ())
    strange = foreign(installation, pristine, sorted(paths.difference(ours)))
    if strange and not allow_modified:
        raise foreign_error(installation, strange)
