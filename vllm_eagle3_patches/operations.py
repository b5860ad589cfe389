"""check, apply, revert and diff as functions: everything the commands do but printing."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from vllm_eagle3_patches import __version__, integrity, plan
from vllm_eagle3_patches.errors import IntegrityError, PatchError, RefusedError
from vllm_eagle3_patches.files import read_state
from vllm_eagle3_patches.gates import NAMES, proposer
from vllm_eagle3_patches.gates.base import Finding, State
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.interruption import interrupted, undisturbed
from vllm_eagle3_patches.receipt import RECEIPT, PatchedFile, Receipt, load
from vllm_eagle3_patches.sources import Sources, sha256
from vllm_eagle3_patches.target import Request, Target, find, registered


@dataclass(frozen=True)
class Report:
    """What a command found or did.

    Attributes:
        state: pristine, patched, interrupted, foreign or editable.
        findings: one for each gate.
        source: where the edits come from: series, codemod or none.
        fingerprint: sha256 over every file the target's EAGLE-3 depends on.
        changed: files that were changed (would be, in a dry run), relative.
        problem: why the files cannot be trusted or changed, or None.
        notes: sentences a person should read.
    """

    state: str
    findings: tuple[Finding, ...] = ()
    source: str = "none"
    fingerprint: str = ""
    changed: tuple[str, ...] = ()
    problem: PatchError | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def exit(self) -> int:
        if self.problem is not None:
            return self.problem.exit
        states = {finding.state for finding in self.findings}
        return 3 if State.REFUSED in states else 1 if State.CLOSED in states else 0


def _receipt(installation: Installation) -> Receipt | None:
    return load(installation.dist_info / RECEIPT)


def _pristine(installation: Installation, receipt: Receipt | None) -> Sources:
    """The sources as they were installed: our originals over what lies there."""
    files = receipt.files if receipt else ()
    return Sources(installation.root, {file.path: file.original for file in files})


def _opened(
    found: list[Finding], pristine: Sources, wanted: Request, version: str
) -> list[Finding]:
    """`native` becomes `open` for the gates that did not pass in the files as installed."""
    was = {f.gate: f.state for f in plan.findings(pristine, find(pristine, wanted, version))}
    return [
        replace(f, state=State.OPEN) if f.state is State.NATIVE and not was[f.gate].passes else f
        for f in found
    ]


# Files beside those the gates read on whose bytes EAGLE-3 depends: the runner that takes the aux
# hidden states, and the drafter.
DEPENDS = (
    "vllm/v1/worker/gpu_model_runner.py",
    "vllm/v1/spec_decode/eagle.py",
    "vllm/model_executor/models/interfaces.py",
    "vllm/model_executor/models/llama_eagle3.py",
)


def _fingerprint(sources: Sources) -> str:
    for path in DEPENDS:
        sources.exists(path)
    return sources.fingerprint()


@undisturbed
def check(installation: Installation, wanted: Request, *, allow_modified: bool = False) -> Report:
    """The state of every gate; writes nothing.

    Raises:
        PatchError: the target cannot be found, or receipt or RECORD cannot be read.
    """
    left = interrupted(installation)
    if left is not None:
        return Report("interrupted", problem=integrity.interruption(installation, left))
    receipt = _receipt(installation)
    current = Sources(installation.root)
    with suppress(PatchError):  # the gates tell it
        # The largest tree, of which little is kept: made first, its memory serves the others.
        proposer.find(current.with_overlay({}))
    changed = integrity.disagreeing(installation, receipt)
    problem: PatchError | None
    if changed:
        found = []
        with suppress(RefusedError):
            found = plan.findings(current, find(current, wanted, installation.version))
            pristine = _pristine(installation, receipt)
            found = _opened(found, pristine, wanted, installation.version)
        problem = integrity.disagreement(installation, changed)
        return Report("foreign", tuple(found), "none", _fingerprint(current), problem=problem)
    try:
        target = find(current, wanted, installation.version)
    except RefusedError as error:
        raise integrity.cause(installation, current, error, allow_modified) from None
    pristine = _pristine(installation, receipt) if receipt else current
    edits = plan.edits_for(pristine, target)
    found = plan.findings(current, target)
    notes: list[str] = []
    problem = None
    state = "patched" if receipt else _bare_state(installation)
    ours = [file.path for file in receipt.files] if receipt else []
    allowed = integrity.foreign(installation, pristine, ours)
    if allowed:
        notes.append(f"not as installed when it was patched: {', '.join(allowed)}")
    read = integrity.judged(pristine, found, edits)
    strange = integrity.foreign(installation, pristine, [path for path in read if path not in ours])
    if strange and not allow_modified and not all(f.state.passes for f in found):
        problem = integrity.foreign_error(installation, strange)
    else:
        found = plan.verified(current, pristine, target, edits, installation.version)
    if strange:
        state = "foreign"
        if problem is None:
            notes.append(f"not as installed: {', '.join(strange)}")
    if receipt:
        found = _opened(found, pristine, wanted, installation.version)
        notes += [
            f"{file.path} is as it was installed again; apply patches it anew"
            for file in receipt.files
            if sha256(current.data(file.path)) == file.before
        ]
    source = receipt.source if receipt else "none"
    return Report(state, tuple(found), source, _fingerprint(current), (), problem, tuple(notes))


def _targets(
    pristine: Sources, names: Iterable[str], wanted: Request | None, version: str
) -> list[Target]:
    """Those a receipt names and the one asked for, each once."""
    requests = [Request.of_key(name) for name in names]
    if wanted is not None:
        requests.append(wanted)
    found = [find(pristine, request, version) for request in requests]
    return list({target.request.key: target for target in found}.values())


@dataclass(frozen=True)
class _Desired:
    """Where an installation is to go: file contents and receipt, planned from pristine files."""

    contents: dict[str, bytes | PatchedFile]
    receipt: Receipt | None
    expected: dict[str, str | None]
    source: str


def _desired(
    installation: Installation,
    wanted: Request | None,
    names: Iterable[str],
    gates: Collection[str],
    allow_modified: bool,
) -> _Desired:
    """The state with EAGLE-3 for `names` and `wanted`; for none of them, the pristine one."""
    receipt = _receipt(installation)
    changed = integrity.disagreeing(installation, receipt)
    if changed:
        raise integrity.disagreement(installation, changed)
    pristine = _pristine(installation, receipt)
    before = {file.path: file for file in receipt.files} if receipt else {}
    try:
        targets = _targets(pristine, names, wanted, installation.version)
        integrity.refuse_foreign(installation, pristine, targets, gates, before, allow_modified)
        made = plan.make(pristine, targets, installation.version, gates)
    except RefusedError as error:
        raise integrity.cause(installation, pristine, error, allow_modified) from None
    files = []
    for path, data in sorted(made.after.items()):
        known = before.get(path)
        if known is not None:
            files.append(replace(known, after=sha256(data)))
            continue
        now = read_state(installation.path(path))
        original = pristine.data(path)
        files.append(
            PatchedFile(path, sha256(original), sha256(data), original, now.mode, now.link)
        )
    contents: dict[str, bytes | PatchedFile] = dict(made.after)
    for path, known in before.items():
        contents.setdefault(path, known)
    expected: dict[str, str | None] = {
        path: read_state(installation.path(path)).digest
        if path in before
        else sha256(pristine.data(path))
        for path in contents
    }
    new = None
    if files:
        new = Receipt(
            __version__,
            installation.version,
            installation.distribution,
            tuple(sorted(target.request.key for target in targets)),
            "series" if made.source == "series" else "codemod",
            tuple(sorted({edit.name for edit in made.edits})),
            tuple(files),
        )
    return _Desired(contents, new, expected, made.source)


def apply(
    installation: Installation,
    wanted: Request | Target,
    *,
    gates: Collection[str] = NAMES,
    allow_modified: bool = False,
    dry_run: bool = False,
) -> Report:
    """Opens the target's gates: all of `gates`, or nothing.

    Raises:
        PatchError: a gate is refused (exit 3), files are not as they should be (4), or they
            cannot be written (6); nothing is changed then.
    """
    from vllm_eagle3_patches.transaction import Transaction  # `check` does without it

    request = wanted.request if isinstance(wanted, Target) else wanted
    notes: list[str] = []
    if dry_run:
        want = _planned(installation, request, gates, allow_modified)
        overlay = {p: c if isinstance(c, bytes) else c.original for p, c in want.contents.items()}
        now = {p: read_state(installation.path(p)).digest for p in overlay}
        changed = [p for p, data in overlay.items() if sha256(data) != now[p]]
    else:
        with Transaction(installation) as transaction:
            notes += transaction.recover()
            want = _desired(installation, request, _applied(installation), gates, allow_modified)
            changed = transaction.commit(want.contents, want.receipt, expected=want.expected)
        overlay = {}
    after = Sources(installation.root, overlay)
    target = find(after, request, installation.version)
    found = plan.findings(after, target)
    if want.receipt:
        found = _opened(found, _pristine(installation, want.receipt), request, installation.version)
    found = [f for f in found if f.gate in gates]
    patched = _receipt(installation) is not None  # a dry run leaves it as it was
    state = "patched" if patched else _bare_state(installation)
    return Report(
        state, tuple(found), want.source, _fingerprint(after), tuple(changed), None, tuple(notes)
    )


@undisturbed
def _planned(
    installation: Installation, wanted: Request, gates: Collection[str], allow_modified: bool
) -> _Desired:
    """Where `apply` would bring the installation, by looking only."""
    left = interrupted(installation)
    if left is not None:
        raise integrity.interruption(installation, left)
    return _desired(installation, wanted, _applied(installation), gates, allow_modified)


def _applied(installation: Installation) -> tuple[str, ...]:
    receipt = _receipt(installation)
    return receipt.targets if receipt else ()


def _meant(installation: Installation, receipt: Receipt, wanted: Request) -> tuple[str, ...]:
    """The receipt's targets that a request means: itself, else those of its architecture that do
    not have another language model."""
    same = [n for n in receipt.targets if Request.of_key(n).architecture == wanted.architecture]
    if not same or wanted.config is None:
        return tuple(same)
    try:
        pristine = _pristine(installation, receipt)
        exact = find(pristine, wanted, installation.version).request
    except PatchError:
        return tuple(same)
    if exact.key in same:
        return (exact.key,)
    return tuple(n for n in same if Request.of_key(n).language in (None, exact.language))


def revert(
    installation: Installation, wanted: Request | None = None, *, force: bool = False
) -> Report:
    """Back to the installed bytes: for one target, or with None for all.

    Raises:
        PatchError: a file is not as we left it (exit 4; with `force` a copy of it is kept aside
            and the original restored), or something cannot be written (6).
    """
    from vllm_eagle3_patches.transaction import Transaction

    notes: list[str] = []
    with Transaction(installation) as transaction:
        notes += transaction.recover()
        receipt = _receipt(installation)
        if wanted is not None:
            _known(_pristine(installation, receipt), wanted, installation.version)
        if receipt is None:
            return Report(
                _bare_state(installation),
                notes=(
                    *notes,
                    "nothing of ours is applied; check tells whether the files are as installed",
                ),
            )
        changed_by_others = integrity.disagreeing(installation, receipt)
        if changed_by_others and not force:
            raise integrity.disagreement(installation, changed_by_others)
        going = receipt.targets if wanted is None else _meant(installation, receipt, wanted)
        if wanted is not None and not going:
            return Report("patched", notes=(*notes, f"{wanted.architecture} is not applied"))
        rest = [name for name in receipt.targets if name not in going]
        if rest and not changed_by_others:
            want = _desired(installation, None, rest, NAMES, True)
            changed = transaction.commit(want.contents, want.receipt, expected=want.expected)
        else:
            notes += [_keep(installation, path) for path in changed_by_others]
            expected = {f.path: read_state(installation.path(f.path)).digest for f in receipt.files}
            changed = transaction.commit(
                {file.path: file for file in receipt.files}, None, expected=expected
            )
    state = "patched" if rest and not changed_by_others else _bare_state(installation)
    if state == "pristine":
        strange = integrity.foreign(installation, Sources(installation.root), changed)
        if strange:  # as --allow-modified found it
            state = "foreign"
            notes.append(f"as before apply, which is not as installed: {', '.join(strange)}")
    return Report(state, changed=tuple(changed), notes=tuple(notes))


def _known(pristine: Sources, wanted: Request, version: str) -> None:
    """Raises UsageError: no such architecture; else a slip in its name would revert nothing."""
    with suppress(RefusedError, IntegrityError):  # of no concern to who takes it back
        registered(pristine, wanted, version)


def _bare_state(installation: Installation) -> str:
    return "editable" if installation.editable else "pristine"


def _keep(installation: Installation, path: str) -> str:
    """A copy of a changed file in the user's state folder, outside the package."""
    try:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError:  # a user without a home
        base = Path("/var/tmp")
    data = read_state(installation.path(path)).data
    if data is None:
        return f"{path} was missing"
    kept = base / "vllm-eagle3-patch" / f"{sha256(data)[:12]}-{path.replace('/', '.')}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(data)
    return f"kept the changed {path} as {kept}"


def diff(installation: Installation, wanted: Request, *, allow_modified: bool = False) -> str:
    """The unified diff from the installed bytes to EAGLE-3 for the target and those applied.

    Raises:
        PatchError: as `apply`.
    """
    want = _planned(installation, wanted, NAMES, allow_modified)
    pristine = _pristine(installation, want.receipt)
    return "".join(
        unified(path, pristine.data(path), content)
        for path, content in sorted(want.contents.items())
        if isinstance(content, bytes)
    )


def contents(
    installation: Installation, wanted: Request, *, allow_modified: bool = False
) -> dict[str, bytes]:
    """Path -> the bytes that each file would have after `apply`; nothing is written.

    Raises:
        PatchError: as `apply`.
    """
    want = _planned(installation, wanted, NAMES, allow_modified)
    return {path: new for path, new in want.contents.items() if isinstance(new, bytes)}


def unified(path: str, before: bytes, after: bytes) -> str:
    """A unified diff with `a/` and `b/` in front of the path, line ends as in the file."""
    import difflib

    # Split at "\n" only: form feeds and lone carriage returns are part of a line for `patch`.
    old, new = (data.decode().split("\n") for data in (before, after))
    lines = difflib.unified_diff(
        [f"{line}\n" for line in old[:-1]] + ([old[-1]] if old[-1] else []),
        [f"{line}\n" for line in new[:-1]] + ([new[-1]] if new[-1] else []),
        f"a/{path}",
        f"b/{path}",
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )
