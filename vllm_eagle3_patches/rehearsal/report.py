"""What a rehearsal showed, for a person and for a program, and what it did not cover."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vllm_eagle3_patches.preflight.checks.files import CLASS as MISSING
from vllm_eagle3_patches.preflight.facts import quantization
from vllm_eagle3_patches.preflight.findings import Finding, Severity
from vllm_eagle3_patches.rehearsal import layers, rules, stages
from vllm_eagle3_patches.rehearsal.diagnosis import Diagnosis
from vllm_eagle3_patches.rehearsal.memory import Estimate
from vllm_eagle3_patches.rehearsal.prepare import LENGTH, Pair
from vllm_eagle3_patches.rehearsal.run import FAILED, NOT_RUN, PASSED, SKIPPED, Outcome, Result

WIDTH = 100
COLOURS = {PASSED: "32", FAILED: "31", SKIPPED: "33", NOT_RUN: "2"}


@dataclass(frozen=True)
class Rehearsal:
    """All that is known when it is over."""

    pair: Pair
    outcome: Outcome
    diagnosis: Diagnosis | None
    estimate: Estimate
    changed: tuple[str, ...]  # files that --apply changed in the throw-away copy
    options: dict[str, str]  # of the user's command line
    findings: tuple[Finding, ...] = ()  # what `check --drafter` says of the real pair
    unseen: tuple[str, ...] = ()  # what it could not compare
    bare: bool = False  # the drafter's folder has no weight files

    @property
    def incomplete(self) -> bool:
        """Nothing failed, and yet a stage was not reached."""
        return self.outcome.failed is None and any(
            result.state == NOT_RUN for result in self.outcome.results
        )

    @property
    def errors(self) -> int:
        """Findings for which the real pair will fail; that a folder has only the drafter's
        config.json is no fault of the pair, and its twin needs no more."""
        grave = [f for f in self.findings if f.severity is Severity.ERROR]
        return len([f for f in grave if f.cls != MISSING or not self.bare])

    @property
    def exit(self) -> int:
        failed = self.outcome.failed is not None or self.errors
        return 1 if failed else 3 if self.incomplete else 0


def line(result: Result, *, coloured: bool = False) -> str:
    """One stage."""
    state = f"{result.state:8}"
    if coloured:
        state = f"\x1b[{COLOURS[result.state]}m{state}\x1b[0m"
    seconds = "" if result.seconds is None else f"{result.seconds:5.1f} s"
    text = f"  {state} {result.stage:18} {seconds:8} {result.detail}".rstrip()
    return text if len(text) < 400 else f"{text[:400]}…"


def sizes(pair: Pair) -> str:
    """What the twin is like beside the real one."""
    said = []
    for name, fields in (
        ("layers", layers.COUNTS),
        ("hidden size", rules.HIDDEN),
        ("heads", rules.HEADS),
        ("experts", rules.EXPERTS),
    ):
        before, after = (rules.number(c, fields) for c in (pair.target.real, pair.target.text))
        if before is not None and after is not None:
            said.append(f"{name} {after} of {before}")
    return ", ".join(said)


def not_covered(found: Rehearsal) -> list[str]:
    """What nobody should read out of a rehearsal that passed."""
    pair, facts = found.pair, found.outcome.facts
    cpu = facts.get("device") == "cpu"
    said = ["the real weights: with random ones, acceptance says nothing about a trained drafter"]
    method = quantization(pair.config)
    if method is not None:
        said.append(f"quantization: the twin has none, the model has {method}")
    said.append("memory at full size: estimated below, from headers only")
    said.append(f"sequences longer than {LENGTH} tokens, a full batch, and speed")
    if pair.multimodal:
        said.append("requests with images: the twin is given token ids only")
    if cpu:
        said.append("GPU kernels, torch.compile and CUDA graphs: this is a CPU build, run eagerly")
        if pair.mixes_attention:
            said.append("MLA: off here, as a CPU build cannot mix it with the drafter's attention")
    elif facts.get("eager"):
        said.append("torch.compile and CUDA graphs: run eagerly, as asked")
    asked = found.options.get("tensor-parallel-size")
    if asked is not None and asked != str(pair.parallel):
        said.append(f"tensor parallelism over {asked}: rehearsed over {pair.parallel}")
    for option in ("pipeline-parallel-size", "data-parallel-size"):
        if found.options.get(option, "1") != "1":
            said.append(f"--{option} {found.options[option]}")
    left = facts.get("options_left_out")
    if left:
        said.append(f"options of yours that a twin cannot honour: {', '.join(left)}")
    dropped = (*pair.target.notes, *pair.drafter.notes)
    if dropped:
        said.append(f"left out of the twins: {', '.join(dict.fromkeys(dropped))}")
    if not pair.drafter.from_files:
        said.append("the drafter's own tensor names: its files are not at hand")
    twins = next(r for r in found.outcome.results if r.stage == stages.TWINS)
    if twins.state == PASSED and not twins.facts.get("checkpoint", True):
        said.append("loading the target's weights by their names: Transformers cannot write them")
    return said


def as_json(found: Rehearsal) -> dict[str, Any]:
    """The keys that `rehearse` adds."""
    outcome = found.outcome
    nothing: dict[str, Any] = {
        "cause": None,
        "what": None,
        "gate": None,
        "fix": None,
        "frames": [],
        "edits": [],
    }
    return {
        "stages": [
            {"stage": r.stage, "state": r.state, "seconds": r.seconds and round(r.seconds, 2),
             "peak_bytes": r.peak, "detail": r.detail, "facts": r.facts}
            for r in outcome.results
        ],
        **(nothing if found.diagnosis is None else found.diagnosis.as_json()),
        "machine": outcome.facts,
        "changed": list(found.changed),
        "twin": {"target": found.pair.target.config, "drafter": found.pair.drafter.config},
        "findings": [finding.as_json() for finding in found.findings],
        "not_compared": list(found.unseen),
        "not_covered": not_covered(found),
        "memory": found.estimate.as_json(),
        "seconds": round(outcome.seconds, 1),
        "peak_bytes": outcome.peak,
    }  # fmt: skip


def lines(found: Rehearsal) -> Iterator[str]:
    """What is printed when the stages are over."""
    yield ""
    if found.diagnosis is not None:
        yield from _failure(found.diagnosis, found.outcome.failed)
    if found.findings or found.unseen:
        yield "  of the real pair, check says:"
        for finding in found.findings:
            yield from _wrapped(f"{finding.severity.value}, {finding.cls}: {finding.detail}")
            yield from _wrapped(f"fix: {finding.fix}", "      ")
        for text in found.unseen:
            yield from _wrapped(f"not known: {text}")
    yield "  not covered by this rehearsal:"
    for text in not_covered(found):
        yield from _wrapped(text)
    yield "  the real pair needs (estimate):"
    for text in found.estimate.lines():
        yield from _wrapped(text)
    yield ""


def _wrapped(text: str, first: str = "    - ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent="      ")


def _failure(diagnosis: Diagnosis, failed: Result | None) -> Iterator[str]:
    yield f"  class {diagnosis.kind}"
    said = " ".join(diagnosis.message.split())
    if failed is not None and said[:80] not in failed.detail:
        yield f"  said  {said if len(said) < 400 else f'{said[:400]}…'}"
    if diagnosis.report is not None:
        if diagnosis.report.what:
            yield f"  why   {diagnosis.report.what}"
        if diagnosis.report.gate:
            yield f"  gate  {diagnosis.report.gate}"
    if diagnosis.fix:
        yield f"  fix   {diagnosis.fix}"
    if diagnosis.report is not None:
        for head, frame in zip(["at", *[""] * 9], diagnosis.report.frames, strict=False):
            yield f"  {head:5} {frame.path}:{frame.line} {frame.function}  {frame.code}".rstrip()
    yield ""


def verdict(found: Rehearsal) -> str:
    """The last line."""
    outcome = found.outcome
    took = f"in {outcome.seconds:.0f} s, {outcome.peak / 2**30:.1f} GiB at most"
    if outcome.failed is not None:
        return f"EAGLE-3 does not start: it ends at '{outcome.failed.stage}' ({took})"
    if found.errors:
        many = f"{found.errors} error{'s' if found.errors > 1 else ''}"
        return f"the twin passes, and the real pair will not start: {many} of check above ({took})"
    if found.incomplete:
        missing = [r.stage for r in outcome.results if r.state == NOT_RUN]
        return f"passed as far as this build can go; not run: {', '.join(missing)} ({took})"
    skipped = [r.stage for r in outcome.results if r.state == SKIPPED]
    but = f", but not seen: {', '.join(skipped)}" if skipped else ""
    return f"EAGLE-3 starts, drafts and verifies on the twin{but} ({took})"
