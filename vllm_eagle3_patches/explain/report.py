"""The story -> the answer: what failed and why, or how the server is doing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vllm_eagle3_patches.explain.facts import Facts
from vllm_eagle3_patches.explain.signatures import Frame, Signature, edits_on
from vllm_eagle3_patches.explain.story import Event, Start, Story
from vllm_eagle3_patches.gates import NAMES

FAILED, UP, LOADING, STOPPED = "failed", "up", "loading", "stopped"
SHOWN_FRAMES = 5
SHOWN_MESSAGE = 600
ALSO = 10
# Below this the drafter works on the wrong inputs; a fair head accepts several times as much.
POOR_ACCEPTANCE = 0.1
ENOUGH_DRAFTED = 100

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
_DRAFTING = re.compile(r"(?:^|/)config/speculative\.py$|/spec_decode/")


@dataclass(frozen=True)
class Cause:
    """One error; `kind` is its class, `log_line` counts from 1."""

    kind: str
    process: str | None
    exception: str | None
    message: str
    log_line: int


@dataclass(frozen=True)
class Report:
    """The answer.

    Attributes:
        status: of the last start in the log: failed, up, loading or stopped (after it was up).
        cause: what the last start failed of, None unless it failed.
        repeated: how often the log has that same error.
        what: the cause in a sentence of ours.
        gate: the gate the cause belongs to.
        fix: what to do; None where `apply` says it all.
        apply: whether `vllm-eagle3-patch apply` opens the gate.
        frames: the innermost frames of the cause's traceback, innermost last.
        edits: our edits whose functions lie on it.
        also: other errors, other starts' causes, and doubts about a server that is up.
    """

    status: str
    facts: Facts
    starts: int
    cause: Cause | None = None
    repeated: int = 1
    what: str | None = None
    gate: str | None = None
    fix: str | None = None
    apply: bool = False
    frames: tuple[Frame, ...] = ()
    edits: tuple[str, ...] = ()
    also: tuple[Cause, ...] = ()


def report(story: Story) -> Report:
    """What the log says so far; call `story.flush()` first when no more is to come."""
    start = story.now
    earlier = tuple(_earlier(story))
    if not start.failed:
        status = STOPPED if start.facts.stopped_at else UP if start.facts.up else LOADING
        doubts = tuple(_doubts(start.facts))
        others = tuple(_others(start, None))
        return Report(status, start.facts, story.count, also=doubts + others + earlier)
    event = start.cause
    if event is None:  # the log says that the server died, and nothing else
        cause = Cause("unknown", None, None, "", start.fatal_at)
        return Report(FAILED, start.facts, story.count, cause, also=earlier)
    signature, facts = event.signature, start.facts
    kind = _class(event, facts)
    frames = tuple(event.fault.frames)
    return Report(
        FAILED,
        facts,
        story.count,
        _cause(event, facts),
        event.count,
        what=_what(event),
        gate=kind if kind in NAMES else None,
        fix=_fix(event),
        apply=signature is not None and signature.apply,
        frames=frames[-SHOWN_FRAMES:],
        edits=edits_on(frames),
        also=tuple(_others(start, event)) + earlier,
    )


def _class(event: Event, facts: Facts) -> str:
    signature = event.signature
    if signature is None or signature.kind is None:
        return "unknown"
    if signature.subject:
        subject = event.values.get(signature.subject, "") or event.fault.message
        of_drafter = facts.drafter is not None and facts.drafter in subject
        of_target = facts.model is not None and facts.model in subject and not of_drafter
        if signature.if_target and of_target:
            return signature.if_target
        drafting = any(_DRAFTING.search(frame.path) for frame in event.fault.frames)
        if signature.if_drafter and (of_drafter or (drafting and not of_target)):
            return signature.if_drafter
    return signature.kind


def _cause(event: Event, facts: Facts) -> Cause:
    fault = event.fault
    message = fault.message.strip()
    if len(message) > SHOWN_MESSAGE:
        message = f"{message[:SHOWN_MESSAGE]}…"
    kind = _class(event, facts)
    return Cause(kind, event.line.process, fault.exception, message, event.line.number)


def _what(event: Event) -> str | None:
    if event.fault.cut and event.signature is None:
        return "the log ends inside a traceback, before the line that names the error"
    if event.is_wrapper:
        return "the log holds only what followed from the cause, not the cause itself"
    if event.signature is None:
        return None
    return _filled(event.signature.what, event.values)


def _fix(event: Event) -> str | None:
    if event.is_wrapper or (event.fault.cut and event.signature is None):
        return "explain the whole log: the cause stands in the lines of a worker or engine process"
    signature: Signature | None = event.signature
    if signature is None:
        return "no known error text: search vLLM's issues for the message, with the frames"
    return _filled(signature.fix, event.values) or None


def _filled(text: str, values: Mapping[str, str]) -> str:
    return _PLACEHOLDER.sub(lambda found: values.get(found[1], "?").strip(), text)


def _others(start: Start, cause: Event | None) -> Iterator[Cause]:
    said = {_alike(cause)} if cause else set()
    count = 0
    for event in sorted(start.events.values(), key=lambda event: event.rank):
        cut = event.fault.cut and event.signature is None
        if event is cause or event.is_wrapper or cut or _alike(event) in said or count == ALSO:
            continue
        said.add(_alike(event))
        count += 1
        yield _cause(event, start.facts)


def _alike(event: Event) -> str:
    """What an error has in common with its repetitions in other processes and attempts."""
    return event.signature.id if event.signature else event.fault.message.strip()


def _earlier(story: Story) -> Iterator[Cause]:
    for start in story.starts[:-1]:
        event = start.cause
        if start.failed and event is not None:
            yield _cause(event, start.facts)


def _doubts(facts: Facts) -> Iterator[Cause]:
    rate = facts.acceptance
    if rate is not None and facts.drafted >= ENOUGH_DRAFTED and rate < POOR_ACCEPTANCE:
        yield Cause(
            "aux-layers",
            None,
            None,
            f"only {rate:.1%} of {facts.drafted} drafted tokens were accepted: the drafter gets "
            "other layers than it was trained on, or a setting of its config.json is ignored",
            facts.alive_at,
        )
