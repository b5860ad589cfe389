"""`explain`: a server log's root cause and what mends it, or how the server is doing."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_eagle3_patches.cli import output
from vllm_eagle3_patches.errors import RefusedError, UsageError
from vllm_eagle3_patches.target import KIMI_K25

if TYPE_CHECKING:  # imported when needed: the other commands start without them
    from vllm_eagle3_patches.explain.installed import Installed
    from vllm_eagle3_patches.explain.report import Report
    from vllm_eagle3_patches.explain.scan import Scanner

EXAMPLE = "vllm-eagle3-patch explain server.log"


EXIT_CODES = (
    "Exit code 0: the server is up, still loading or stopped; 1: it failed; 3: no vLLM log."
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = f"{parser.description} {EXIT_CODES}"
    parser.add_argument("log", nargs="?", metavar="LOG", help="the server's log; - reads the input")
    parser.add_argument(
        "--follow",
        metavar="FILE",
        help="read FILE as it grows, until the server is up (exit 0) or has failed (exit 1); "
        "a pipe, or - for the input, also ends where its writer ends (exit 1)",
    )


def execute(args: argparse.Namespace) -> int:
    """0: up, still loading or stopped; 1: failed; 2: no such log; 3: not a log of vLLM."""
    from vllm_eagle3_patches.explain.installed import look
    from vllm_eagle3_patches.explain.render import as_json, as_text
    from vllm_eagle3_patches.explain.report import FAILED, LOADING, report

    if (args.log is None) == (args.follow is None):
        raise UsageError("name one log: LOG, - for the input, or --follow FILE")
    scanner = _read(args.log) if args.follow is None else _follow(args)
    if not scanner.story.recognised:
        raise RefusedError(
            f"{scanner.lines} lines, and none that vLLM writes",
            where=args.follow or args.log,
            next="name the file that holds the server's standard output and error",
        )
    found = report(scanner.story)
    # Only a pipe lets `--follow` come to an end before the server is up or has failed.
    ended = args.follow is not None and found.status == LOADING
    code = 1 if found.status == FAILED or ended else 0
    args.exit = code
    notes = [f"not read to its end: {scanner.damaged}"] if scanner.damaged else []
    if ended:
        notes.append("the input ended before the server was up")
    there = look(
        found,
        python=args.python,
        site_packages=args.site_packages,
        allow_editable=args.allow_editable,
    )
    notes += there.notes(found) if there is not None else []
    fix = _fix(args, found, there)
    if args.json:
        answer = {
            **output.facts(args, code, None, None),
            **as_json(found, fix),
            "installed": there and there.as_json(),
            "notes": notes,
        }
        print(json.dumps(answer))
    elif code or not args.quiet:
        print("\n".join([*as_text(found, fix), *(f"  note: {note}" for note in notes)]))
    return code


def _read(log: str) -> Scanner:
    from vllm_eagle3_patches.explain.scan import Scanner

    scanner = Scanner()
    if log == "-":
        scanner.read(sys.stdin.buffer)
        return scanner
    try:
        with Path(log).open("rb") as stream:
            scanner.read(stream)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise UsageError(f"the log cannot be read: {error.strerror}", where=log) from None
    return scanner


def _follow(args: argparse.Namespace) -> Scanner:
    from vllm_eagle3_patches.explain.follow import follow
    from vllm_eagle3_patches.explain.render import progress

    last = ""

    def told(scanner: Scanner) -> None:
        nonlocal last
        now = progress(scanner.story.now.facts)
        if now != last and not args.quiet:
            print(now, file=sys.stderr)
        last = now

    return follow(Path(args.follow), told)


def _fix(args: argparse.Namespace, found: Report, there: Installed | None) -> str | None:
    """The command that opens the gate, where one does, before any other advice."""
    advice = there.advice() if there is not None else None
    if advice is not None:
        return advice
    if not found.apply:
        return found.fix
    name = found.facts.target_architecture or found.facts.model
    args.model = None if name == KIMI_K25 else name
    command = output.again(args, "apply")
    return f"{command}; {found.fix}" if found.fix else command
