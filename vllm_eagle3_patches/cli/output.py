"""What a command prints: a line a gate for a person, or one JSON object."""

from __future__ import annotations

import argparse
import io
import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vllm_eagle3_patches import operations
from vllm_eagle3_patches.errors import PatchError
from vllm_eagle3_patches.gates.base import Finding, State
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.operations import Report
from vllm_eagle3_patches.target import Request

if TYPE_CHECKING:
    from vllm_eagle3_patches.preflight import Finding as Fault

SCHEMA = 1  # of the JSON answers
INTERRUPTED = 130  # as a shell has it: 128 and the number of SIGINT
_COLOURS = {
    State.NATIVE: "32",
    State.OPEN: "32",
    State.CLOSED: "33",
    State.REFUSED: "31",
    State.NOT_APPLICABLE: "2",
}


def prepare() -> None:
    """Lets a path be printed that the encoding of standard output has no characters for."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def discard() -> None:
    """Nobody reads what is printed from here on; else Python tries at its end, and complains."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def coloured() -> bool:
    """Colour only on a terminal, and not where NO_COLOR asks for none."""
    return sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def painted(text: str, state: State) -> str:
    """The text in the colour of the state, where there are colours."""
    return f"\x1b[{_COLOURS[state]}m{text}\x1b[0m" if coloured() else text


def heading(installation: Installation, state: str) -> None:
    """The lines that say which vLLM this is about."""
    print(f"vLLM {installation.version} ({installation.distribution}), {state}")
    print(f"  in {installation.package}, found through {installation.found_by}")


def again(args: argparse.Namespace, command: str) -> str:
    """The same command line for another command."""
    words = ["vllm-eagle3-patch", command]
    for option in ("model", "python", "site_packages"):
        value = getattr(args, option, None)
        if value is not None and (option, command) != ("model", "revert"):
            words += [f"--{option.replace('_', '-')}", value]
    if args.allow_editable:
        words.append("--allow-editable")
    if command != "revert" and getattr(args, "allow_modified", False):
        words.append("--allow-modified")
    return shlex.join(words)


def facts(
    args: argparse.Namespace, code: int, installation: Installation | None, wanted: Request | None
) -> dict[str, object]:
    """The keys that every JSON answer has."""
    return {
        "schema": SCHEMA,
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


def located(args: argparse.Namespace, error: PatchError) -> PatchError:
    """The error, with the commands it tells to run made whole: for this installation."""
    for command in ("apply", "revert"):
        if error.next is not None:
            bare = f"vllm-eagle3-patch {command}"
            error.next = error.next.replace(bare, again(args, command))
    return error


def error(found: PatchError | None) -> dict[str, object]:
    """The key `error` of a JSON answer, where there is one."""
    if found is None:
        return {}
    return {"error": {"what": found.what, "where": found.where, "next": found.next}}


def failure(args: argparse.Namespace, problem: PatchError) -> None:
    """An error, on standard error, or as JSON on standard output."""
    located(args, problem)
    if args.json:
        installation = getattr(args, "installation", None)
        wanted = getattr(args, "wanted", None)
        known = facts(args, problem.exit, installation, wanted)
        if args.command in ("check", "apply", "revert"):
            known |= _results(_found(installation, wanted))
        print(json.dumps({**known, **error(problem)}))
    else:
        print(f"vllm-eagle3-patch: error: {problem}", file=sys.stderr)


def bare(command: str | None, code: int, what: str, following: str | None = None) -> None:
    """The JSON answer of a command that came to nothing more."""
    error = {"what": what, "where": None, "next": following}
    try:
        whole = {"schema": SCHEMA, "command": command, "exit": code, "error": error}
        print(json.dumps(whole), flush=True)
    except BrokenPipeError:  # the exit code says it
        discard()


def interrupted(args: argparse.Namespace) -> int:
    """Says that the command was ended by a signal; its exit code."""
    if args.json:
        bare(args.command, INTERRUPTED, "interrupted")
    print("interrupted", file=sys.stderr)
    return INTERRUPTED


def _found(installation: Installation | None, wanted: Request | None) -> Report | None:
    """What a look shows after a command has failed; None where there is nothing to look at."""
    if installation is None or wanted is None:
        return None
    try:
        return operations.check(installation, wanted)
    except (PatchError, OSError):
        return None


def emit(
    args: argparse.Namespace,
    installation: Installation,
    wanted: Request | None,
    report: Report,
    verdict: str,
    findings: Sequence[Fault] | None = None,
    unseen: Sequence[str] = (),
) -> int:
    """Prints the report, what preflight found and could not see, and the verdict; exit code."""
    code = report.exit or int(any(fault.severity == "error" for fault in findings or ()))
    args.exit = code
    if report.problem is not None:
        located(args, report.problem)
    if args.json:
        print(
            json.dumps(
                {
                    **facts(args, code, installation, wanted),
                    **_results(report),
                    **_preflight(findings, unseen),
                    **error(report.problem),
                }
            )
        )
        return code
    if not args.quiet:
        _print(args, installation, wanted, report)
        _print_faults(findings or (), apart=not report.findings)
        if report.problem is None:
            print(verdict)
        if findings is not None:
            from vllm_eagle3_patches.preflight.report import summary

            print(summary(findings, unseen))
    if report.problem is not None:
        if sys.stdout is not None:
            sys.stdout.flush()
        print(f"vllm-eagle3-patch: error: {report.problem}", file=sys.stderr)
    return code


def _preflight(findings: Sequence[Fault] | None, unseen: Sequence[str]) -> dict[str, object]:
    if findings is None:
        return {}
    return {"findings": [f.as_json() for f in findings], "not_compared": list(unseen)}


def _print_faults(findings: Sequence[Fault], *, apart: bool) -> None:
    if findings:
        from vllm_eagle3_patches.preflight.report import lines

        print("\n" * apart + "\n".join(lines(findings, coloured=coloured())) + "\n")


def _results(report: Report | None) -> dict[str, object]:
    """The keys of `check`, `apply` and `revert`."""
    return {
        "installation": report and report.state,
        "gates": [_gate(finding) for finding in report.findings] if report else [],
        "changed": list(report.changed) if report else [],
        "source": report.source if report else "none",
        "fingerprint": report.fingerprint if report else "",
        "notes": list(report.notes) if report else [],
    }


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
    heading(installation, report.state)
    if wanted is not None:
        known = f", model_type {wanted.model_type}" if wanted.model_type else ""
        print(f"  target {wanted.architecture}{known}")
    if report.findings:
        print()
    places = [f"{f.file}:{f.line}" if f.line else f.file or "-" for f in report.findings]
    width = max(map(len, places), default=0)
    for finding, place in zip(report.findings, places, strict=True):
        state = painted(f"{finding.state.value:8}", finding.state)
        print(f"  {state} {finding.gate:15} {place:{width}}  {finding.detail}")
    if report.findings:
        print()
    for path in report.changed:
        print(f"  {'would write' if getattr(args, 'dry_run', False) else 'wrote'} {path}")
    for note in report.notes:
        print(f"  note: {note}")
