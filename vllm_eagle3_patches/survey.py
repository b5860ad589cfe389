"""Every generating architecture of a vLLM, and what this tool can do for it.

The names alone are known here, no config: what a config decides is said of a row, not guessed.
A row is `closed`, which means that it can be opened, only where a plan was made and proven.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from vllm_eagle3_patches import model_types, plan, registry
from vllm_eagle3_patches.errors import PatchError
from vllm_eagle3_patches.gates import interface, model_type
from vllm_eagle3_patches.gates.base import Finding, State
from vllm_eagle3_patches.sources import Sources
from vllm_eagle3_patches.target import MODEL_TYPES, Request, Target, find

# The registry's tables of models that generate text; source: registry.py, 0.10.1 to 0.33.0.
KINDS = {"_TEXT_GENERATION_MODELS": "text", "_MULTIMODAL_MODELS": "multimodal"}
# Those it runs with the code of transformers, beside others of their kind that embed or classify.
TRANSFORMERS = ("_TRANSFORMERS_SUPPORTED_MODELS", "_TRANSFORMERS_BACKEND_MODELS")
# Stands for the model_type of a config that is not there; it is in no list of vLLM's.
UNKNOWN = "a_model_type_to_come"
LANGUAGE_MODEL = "language-model"
CLAIMED = "upstream says so; this tool could not read its decoder"
_PLACE = re.compile(r"(vllm/[\w/.]+\.py)(?::(\d+))?")  # in what an error says of where


@dataclass(frozen=True)
class Row:
    """One architecture.

    Attributes:
        architecture: the name in the registry.
        kind: "text" or "multimodal".
        state: native, open, closed (it can be opened) or refused.
        gates: those that are closed, or the one that is refused.
        config: what only a config.json tells: "language-model", "model-type".
        file: where the refusal comes from, relative; `line` beside it.
        detail: why it is refused; of a native one, what was not seen with our own eyes.
        rests_on: the files that the state rests on.
    """

    architecture: str
    kind: str
    state: State
    gates: tuple[str, ...] = ()
    config: tuple[str, ...] = ()
    file: str | None = None
    line: int | None = None
    detail: str = ""
    rests_on: tuple[str, ...] = ()


@dataclass(frozen=True)
class Patched:
    """An installation that we have patched: its files as they lie there, and for whom."""

    current: Sources
    targets: tuple[str, ...]
    paths: frozenset[str]


def entries(sources: Sources) -> list[registry.Entry]:
    """The registry's generating architectures, in its order; raises RefusedError as `read`."""
    return [e for e in registry.read(sources).values() if _kind(e) is not None]


def _kind(entry: registry.Entry) -> str | None:
    """text, multimodal, or None where it does not generate text."""
    if entry.table not in TRANSFORMERS:
        return KINDS.get(entry.table)
    if not entry.cls.endswith("ForCausalLM"):
        return None
    return "multimodal" if "MultiModal" in entry.cls else "text"


def rows(
    sources: Sources,
    version: str,
    patched: Patched | None = None,
    only: Collection[str] | None = None,
) -> Iterator[Row]:
    """One row for each entry, or for those named in `only`; `sources` are the files as they were
    installed.

    Raises:
        RefusedError: the registry cannot be read.
    """
    for entry in entries(sources):
        if only is not None and entry.architecture not in only:
            continue
        view = sources.with_overlay({})  # remembers what this one asked for
        try:
            yield _row(view, entry, version, patched)
        except PatchError as error:
            yield _refused(view, entry, error.what, error.where)
        except Exception as error:  # one entry that is unlike all others must not hide the rest
            what = f"this tool failed on it: {type(error).__name__}: {error}"
            yield _refused(view, entry, what, None)


def _refused(sources: Sources, entry: registry.Entry, what: str, where: str | None) -> Row:
    named = _PLACE.search(where or "")
    if named is not None and sources.exists(named[1]):
        file, line = named[1], int(named[2]) if named[2] else None
    else:
        file, line = registry.PATH, entry.line
    kind = _kind(entry) or ""
    state, asked = State.REFUSED, tuple(sources.asked_for())
    return Row(entry.architecture, kind, state, (), (), file, line, what, asked)


def _row(sources: Sources, entry: registry.Entry, version: str, patched: Patched | None) -> Row:
    name = entry.architecture
    wanted = _asked(sources, Request(name, MODEL_TYPES.get(name)))
    target = find(sources, wanted, version)
    found = plan.findings(sources, target)
    row = Row(name, _kind(entry) or "", State.NATIVE, config=_by_config(target, found))
    refusal = next((f for f in found if f.state is State.REFUSED), None)
    if refusal is not None:
        asked = tuple(sources.asked_for())
        return replace(_because(row, refusal), rests_on=asked)
    closed = _closed(found, row)
    others: Sequence[str] = ()
    paths = {f.file for f in found if f.file}
    if closed or model_type.NAME in row.config:
        edits = plan.edits_for(sources, target)
        paths.update(edit.path for edit in edits)
        if patched is not None and patched.paths.intersection(e.path for e in edits):
            others = [o for o in patched.targets if Request.of_key(o).architecture != name]
            still = _still_closed(patched, wanted, version, row) if closed else ()
            if closed and not still:
                config, rests = _undecided(row, patched), tuple(sorted(paths))
                return replace(row, state=State.OPEN, config=config, rests_on=rests)
            closed = still
        targets = [target, *(_applied(sources, other, version) for other in others)]
        plan.make(sources, targets, version)
    state = State.CLOSED if closed else State.NATIVE
    said = [CLAIMED] if any(structure.unread for structure in target.structures) else []
    need = interface.unmet(sources, target)
    said += [str(need)] if need is not None else []
    rests = tuple(sorted(paths))
    return replace(row, state=state, gates=closed, detail="; ".join(said), rests_on=rests)


def _because(row: Row, refusal: Finding) -> Row:
    file, line, detail = refusal.file, refusal.line, refusal.detail
    gates = (refusal.gate,)
    return replace(row, state=State.REFUSED, gates=gates, file=file, line=line, detail=detail)


def _by_config(target: Target, found: Collection[Finding]) -> tuple[str, ...]:
    """What a config would tell of the target: its language model, and whether its model_type is
    in vLLM's list."""
    config = []
    if any(structure.by_config for structure in target.structures):
        config.append(LANGUAGE_MODEL)
    listed = any(f.gate == model_type.NAME and f.state is State.CLOSED for f in found)
    if target.model_type == UNKNOWN and listed:
        config.append(model_type.NAME)
    return tuple(config)


def _closed(found: Collection[Finding], row: Row) -> tuple[str, ...]:
    return tuple(f.gate for f in found if f.state is State.CLOSED and f.gate not in row.config)


def _still_closed(patched: Patched, wanted: Request, version: str, row: Row) -> tuple[str, ...]:
    current = patched.current
    return _closed(plan.findings(current, find(current, wanted, version)), row)


def _applied(sources: Sources, key: str, version: str) -> Target:
    return find(sources, _asked(sources, Request.of_key(key)), version)


def _undecided(row: Row, patched: Patched) -> tuple[str, ...]:
    """What only a config tells of a row, less what those told that it was opened with."""
    requests = [Request.of_key(key) for key in patched.targets]
    given = [request for request in requests if request.architecture == row.architecture]
    told = {LANGUAGE_MODEL for request in given if request.language}
    told |= {model_type.NAME for request in given if request.model_type}
    return tuple(what for what in row.config if what not in told)


def _asked(sources: Sources, wanted: Request) -> Request:
    """The request, with a model_type that stands for one nobody can know without a config."""
    if wanted.model_type or model_types.of_architecture(sources, wanted.architecture):
        return wanted
    return replace(wanted, model_type=UNKNOWN)
