"""What a command prints: a line a gate for a person, or one JSON object."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys

from vllm_eagle3_patches.errors import PatchError
from vllm_eagle3_patches.gates.base import Finding, State
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.operations import Report
from vllm_eagle3_patches.target import Request

_COLOURS = {
    State.NATIVE: "32",
    State.OPEN: "32",
    State.CLOSED: "33",
    State.REFUSED: "31",
    State.NOT_APPLICABLE: "2",
}


def coloured() -> bool:
    """Colour only on a terminal, and not where NO_COLOR asks for none."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def again(args: argparse.Namespace, command: str) -> str:
    """The same command line for another command."""
    words = ["vllm-eagle3-patch", command]
    for option in ("model", "python", "site_packages"):
        value = getattr(args, option, None)
        if value is not None:
            words += [f"--{option.replace('_', '-')}", value]
    if args.allow_editable:
        words.append("--allow-editable")
    return shlex.join(words)


def facts(
    args: argparse.Namespace, code: int, installation: Installation | None, wanted: Request | None
) -> dict[str, object]:
    """The keys that every JSON answer has."""
    return {
        "schema": 1,
        "command": args.command,
        "exit": code,
        "vllm": installation
        and {
            "version": installation.version,
            "package": str(installation.package),
            "distribution": installation.distribution,
        },
        "target": wanted and {"architecture": wanted.architecture, "model_type": wanted.model_type},
    }


def _error(error: PatchError | None) -> dict[str, object]:
    if error is None:
        return {}
    return {"error": {"what": error.what, "where": error.where, "next": error.next}}


def failure(args: argparse.Namespace, error: PatchError) -> None:
    """An error, on standard error, or as JSON on standard output."""
    if args.json:
        known = facts(
            args, error.exit, getattr(args, "installation", None), getattr(args, "wanted", None)
        )
        print(json.dumps({**known, **_error(error)}))
    else:
        print(f"vllm-eagle3-patch: error: {error}", file=sys.stderr)


def emit(
    args: argparse.Namespace,
    installation: Installation,
    wanted: Request | None,
    report: Report,
    verdict: str,
) -> int:
    """Prints the report with its one-line verdict; returns the exit code."""
    if args.json:
        print(
            json.dumps(
                {
                    **facts(args, report.exit, installation, wanted),
                    "installation": report.state,
                    "gates": [_gate(finding) for finding in report.findings],
                    "changed": list(report.changed),
                    "source": report.source,
                    "fingerprint": report.fingerprint,
                    "notes": list(report.notes),
                    **_error(report.problem),
                }
            )
        )
        return report.exit
    if not args.quiet:
        _print(args, installation, wanted, report)
        if report.problem is None:
            print(verdict)
    if report.problem is not None:
        sys.stdout.flush()
        print(f"vllm-eagle3-patch: error: {report.problem}", file=sys.stderr)
    return report.exit


def _gate(finding: Finding) -> dict[str, object]:
    return {
        "gate": finding.gate,
        "state": finding.state.value,
        "file": finding.file,
        "line": finding.line,
        "detail": finding.detail,
    }


def _print(
    args: argparse.Namespace, installation: Installation, wanted: Request | None, report: Report
) -> None:
    print(f"vLLM {installation.version} ({installation.distribution}), {report.state}")
    print(f"  in {installation.package}, found through {installation.found_by}")
    if wanted is not None:
        print(f"  target {wanted.architecture}, model_type {wanted.model_type or 'not known'}")
    if report.findings:
        print()
    places = [f"{f.file}:{f.line}" if f.line else f.file or "-" for f in report.findings]
    width = max(map(len, places), default=0)
    for finding, place in zip(report.findings, places, strict=True):
        state = f"{finding.state.value:8}"
        if coloured():
            state = f"\x1b[{_COLOURS[finding.state]}m{state}\x1b[0m"
        print(f"  {state} {finding.gate:15} {place:{width}}  {finding.detail}")
    if report.findings:
        print()
    for path in report.changed:
        print(f"  {'would write' if getattr(args, 'dry_run', False) else 'wrote'} {path}")
    for note in report.notes:
        print(f"  note: {note}")
