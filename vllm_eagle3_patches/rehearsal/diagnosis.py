"""Why a stage failed: what `explain` reads out of the child's log, or the stage's own words."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

from vllm_eagle3_patches.explain import render
from vllm_eagle3_patches.explain import report as explaining
from vllm_eagle3_patches.explain.scan import Scanner
from vllm_eagle3_patches.rehearsal import stages
from vllm_eagle3_patches.rehearsal.run import LOG, TWINS_LOG, Outcome, Result

# Class and fix of a stage that came to its end and showed something wrong.
SHOWN = {
    stages.DRAFTS: (
        "runtime",
        "look at the log: the engine generated without asking the drafter",
    ),
    stages.SAME_TOKENS: (
        "runtime",
        "run again with --enforce-eager to see whether compilation is at fault, and report it",
    ),
    stages.ENTRY: (
        "aux-capture",
        "the target's forward captures something else than the stream: do not serve with it; "
        "its drafts would be rejected",
    ),
    stages.REFERENCE: (
        "aux-capture",
        "vLLM's model computes other states than the model's authors: do not serve with it",
    ),
}
NO_IMPORT = (
    "this interpreter does not get as far as vLLM: name that of the environment in which vLLM "
    "runs with --python EXE, or mend it there: EXE -c 'import vllm'"
)
KILLED = (
    "someone else killed it, most likely the system for want of memory: free some (a rehearsal on "
    "a CPU holds up to 3 GiB), or look at `dmesg`"
)


@dataclass(frozen=True)
class Diagnosis:
    """The cause of a failed rehearsal; `report` is None where no exception stands in the log."""

    kind: str
    message: str
    fix: str | None
    apply: bool
    report: explaining.Report | None

    @property
    def gate(self) -> str | None:
        return self.report.gate if self.report is not None else None

    def as_json(self) -> dict[str, Any]:
        if self.report is not None:
            whole = render.as_json(self.report, self.fix)
            return {key: whole[key] for key in ("cause", "what", "gate", "fix", "frames", "edits")}
        cause = {"class": self.kind, "process": None, "exception": None,
                 "message": self.message, "log_line": None}  # fmt: skip
        return {"cause": cause, "what": None, "gate": None, "fix": self.fix, "frames": [],
                "edits": []}  # fmt: skip


def of(outcome: Outcome, failed: Result) -> Diagnosis:
    """What is known about it."""
    log = TWINS_LOG if failed.stage == stages.TWINS else LOG
    kept = f"keep the twins and the log with --keep DIR, and look at DIR/{log}"
    if failed.facts.get("killed"):
        return Diagnosis("runtime", failed.detail, KILLED, False, None)
    if failed.facts.get("shown"):
        kind, fix = SHOWN.get(failed.stage, ("runtime", kept))
        return Diagnosis(kind, failed.detail, fix, False, None)
    if failed.stage == stages.TWINS:  # no vLLM in it: nothing that `explain` knows
        return Diagnosis("runtime", failed.detail, kept, False, None)
    scanner = Scanner()
    scanner.read(io.BytesIO(outcome.log))
    found = explaining.report(scanner.story)
    in_imports = failed.stage == stages.CONFIGS and not outcome.facts
    if in_imports and (found.cause is None or found.cause.kind == "unknown"):
        return Diagnosis("runtime", failed.detail, NO_IMPORT, False, None)
    if found.cause is None or not scanner.story.recognised:
        return Diagnosis("runtime", failed.detail, kept, False, None)
    return Diagnosis(found.cause.kind, found.cause.message, found.fix, found.apply, found)
