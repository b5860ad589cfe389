"""Findings as lines for a person."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from vllm_eagle3_patches.preflight.findings import Finding, Severity

COLOURS = {Severity.ERROR: "31", Severity.WARNING: "33"}
WIDTH = 100


def lines(findings: Sequence[Finding], *, coloured: bool = False) -> Iterator[str]:
    """One block a finding: severity and class, what was found, what to do."""
    for finding in findings:
        label = f"{finding.severity.value:8}"
        if coloured:
            label = f"\x1b[{COLOURS[finding.severity]}m{label}\x1b[0m"
        yield f"  {label} {finding.cls}"
        for text in (finding.detail, f"fix: {finding.fix}"):
            yield from textwrap.wrap(
                text, WIDTH, initial_indent=" " * 11, subsequent_indent=" " * 13
            )


def summary(findings: Sequence[Finding], unseen: Sequence[str] = ()) -> str:
    """What was found, counted; and what was not looked at, without which nothing is said to fit."""
    errors = sum(f.severity is Severity.ERROR for f in findings)
    warnings = len(findings) - errors
    counts = [
        f"{number} {word}{'s' if number > 1 else ''}"
        for number, word in ((errors, "error"), (warnings, "warning"))
        if number
    ]
    if not findings and not unseen:
        return "the drafter fits: nothing found"
    said = ", ".join(counts) or "nothing found, but not everything was compared"
    return "\n".join([f"drafter: {said}", *(f"  not known: {text}" for text in unseen)])
