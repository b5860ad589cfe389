"""The report as text for a person, and as facts for a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta

from vllm_eagle3_patches.explain.facts import LOADING_DRAFTER, LOADING_TARGET, Facts
from vllm_eagle3_patches.explain.report import STOPPED, UP, Cause, Report

SHOWN_LINES = 6  # of a message


def as_json(found: Report, fix: str | None) -> dict[str, object]:
    """The keys that `explain` adds to every JSON answer's."""
    facts = found.facts
    architecture, took = facts.target_architecture, facts.took
    return {
        "vllm": facts.version and {"version": facts.version, "package": None, "distribution": None},
        "target": architecture and {"architecture": architecture, "model_type": None},
        "status": found.status,
        "cause": _cause(found.cause),
        "repeated": found.repeated if found.cause else 0,
        "what": found.what,
        "gate": found.gate,
        "fix": fix,
        "frames": [frame._asdict() for frame in found.frames],
        "edits": list(found.edits),
        "also": [_cause(cause) for cause in found.also],
        "server": {
            "model": facts.model,
            "drafter": facts.drafter,
            "drafter_architecture": facts.drafter_architecture,
            "aux_layers": facts.aux_layers,
            "stage": facts.stage,
            "percent": facts.percent,
            "seconds": None if took is None else int(took.total_seconds()),
            "acceptance_rate": facts.acceptance,
            "acceptance_length": facts.length,
            "starts": found.starts,
        },
    }


def _cause(cause: Cause | None) -> dict[str, object] | None:
    if cause is None:
        return None
    columns = asdict(cause)
    return {"class": columns.pop("kind"), **columns}


def as_text(found: Report, fix: str | None) -> Iterator[str]:
    """The lines to print."""
    yield _verdict(found)
    for line in _server(found.facts):
        yield f"  {line}"
    if found.cause is not None:
        yield ""
        yield from _failure(found, found.cause, fix)
    if found.also:
        yield ""
        yield "  also in the log:"
    for other in found.also:
        words = " ".join(filter(None, (other.exception, _first_line(other.message))))
        yield f"    line {other.log_line}, {other.kind}: {words}"


def _failure(found: Report, cause: Cause, fix: str | None) -> Iterator[str]:
    name = f"{cause.exception}: " if cause.exception else ""
    for line in f"{name}{cause.message}".splitlines()[:SHOWN_LINES]:
        yield f"    {line[:300]}"
    yield ""
    process = cause.process or "a process without a prefix"
    again = f", {found.repeated} times" if found.repeated > 1 else ""
    yield f"  in    {process}, line {cause.log_line} of the log{again}"
    for head, text in (("why", found.what), ("gate", found.gate), ("fix", fix)):
        if text:
            yield f"  {head:5} {text}"
    for head, frame in zip(["at", *[""] * len(found.frames)], found.frames, strict=False):
        yield f"  {head:5} {frame.path}:{frame.line} {frame.function}  {frame.code}".rstrip()
    if found.edits:
        yield f"  on that way lie functions that our edits change: {', '.join(found.edits)}"


def _verdict(found: Report) -> str:
    facts = found.facts
    starts = f" (start {found.starts} in this log)" if found.starts > 1 else ""
    if found.cause is not None:
        when = f" while {facts.stage}" if facts.stage else ""
        when = " after it had come up" if facts.up else when
        return f"failed{starts}{when}: {found.cause.kind}"
    if found.status == STOPPED:
        return f"the server came up, and was stopped{starts}"
    if found.status == UP:
        took = "" if facts.took is None else f" after {_duration(facts.took)}"
        return f"the server is up{took}{starts}"
    return f"still loading{starts}: {progress(facts)}"


def progress(facts: Facts) -> str:
    """What the server is doing."""
    stage = facts.stage or "just begun"
    if facts.percent is None:
        return stage
    shards = "shards " if stage in (LOADING_TARGET, LOADING_DRAFTER) else ""
    return f"{stage}: {shards}{facts.percent} %"


def _server(facts: Facts) -> list[str]:
    lines = []
    target = " ".join(filter(None, (facts.target_architecture, _in(facts.model))))
    drafter = " ".join(filter(None, (facts.drafter_architecture, _in(facts.drafter))))
    for name, text in (
        ("vLLM", facts.version),
        ("target", target),
        ("drafter", drafter),
        ("aux layers", facts.aux_layers),
    ):
        if text:
            lines.append(f"{name:10} {text}")
    if facts.acceptance is not None:
        length = f", mean length {facts.length:.2f}" if facts.length is not None else ""
        lines.append(f"acceptance {facts.acceptance:.1%} of {facts.drafted} drafted{length}")
    return lines


def _in(model: str | None) -> str | None:
    return f"({model})" if model else None


def _first_line(message: str) -> str:
    return message.splitlines()[0][:160] if message else ""


def _duration(took: timedelta) -> str:
    minutes, seconds = divmod(int(took.total_seconds()), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
