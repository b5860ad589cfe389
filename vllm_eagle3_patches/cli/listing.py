"""`check --all`: every architecture of the installed vLLM, a line each, or one JSON object."""

from __future__ import annotations

import argparse
import json
import sys

from vllm_eagle3_patches import listing
from vllm_eagle3_patches.cli import common, output
from vllm_eagle3_patches.errors import UsageError
from vllm_eagle3_patches.gates import model_type
from vllm_eagle3_patches.gates.base import State
from vllm_eagle3_patches.listing import Listing
from vllm_eagle3_patches.survey import KINDS, LANGUAGE_MODEL, Row

SAID = {State.CLOSED: "can be opened"}
CONFIG = {
    LANGUAGE_MODEL: "its config names the language model, on which the rest depends",
    model_type.NAME: "its config's model_type may have to join vLLM's list",
}


def execute(args: argparse.Namespace) -> int:
    given = {
        "--model": args.model is not None,
        "--drafter": args.drafter is not None,
        "--serve-args": args.serve_args is not None,
        "a command line": bool(args.command_line),
    }
    named = [name for name, there in given.items() if there]
    if named:
        raise UsageError(
            f"--all lists every architecture; it cannot go with {' and '.join(named)}",
            next="leave one of them out",
        )
    found = common.find(args)
    result = listing.of(found, allow_modified=args.allow_modified)
    if result.problem is not None:
        output.located(args, result.problem)
    args.exit = result.exit
    if args.json:
        print(json.dumps({**output.facts(args, result.exit, found, None), **_json(result)}))
        return result.exit
    if not args.quiet:
        output.heading(found, result.state)
        _print(args, result)
    if result.problem is not None:
        if sys.stdout is not None:
            sys.stdout.flush()
        print(f"vllm-eagle3-patch: error: {result.problem}", file=sys.stderr)
    return result.exit


def _json(result: Listing) -> dict[str, object]:
    return {
        "installation": result.state,
        "architectures": [
            {
                "architecture": row.architecture,
                "kind": row.kind,
                "state": row.state.value,
                "gates": list(row.gates),
                "config": list(row.config),
                "file": row.file,
                "line": row.line,
                "detail": row.detail,
            }
            for row in result.rows
        ],
        "counts": {state.value: n for state, n in sorted(result.counts.items())},
        "notes": list(result.notes),
        **output.error(result.problem),
    }


def _print(args: argparse.Namespace, result: Listing) -> None:
    width = max((len(row.architecture) for row in result.rows), default=0)
    for kind in KINDS.values() if result.rows else ():
        print(f"\n{kind}")
        for row in (row for row in result.rows if row.kind == kind):
            state = output.painted(f"{SAID.get(row.state, row.state.value):13}", row.state)
            print(f"  {state} {row.architecture:{width}}  {said(row)}".rstrip())
    print()
    for note in result.notes:
        print(f"  note: {note}")
    if not result.rows:
        return
    counts = result.counts
    order = (State.NATIVE, State.OPEN, State.CLOSED, State.REFUSED)
    parts = [f"{counts[s]} {SAID.get(s, s.value)}" for s in order if s in counts]
    print(f"{len(result.rows)} architectures: {', '.join(parts)}")
    if State.CLOSED in counts:
        print(f"To open one: {output.again(args, 'apply')} --model ARCHITECTURE")


def said(row: Row) -> str:
    """What there is to say of a row beside its state."""
    gates = ", ".join(row.gates)
    if row.state is State.REFUSED:
        place = f" ({row.file}:{row.line})" if row.line else f" ({row.file})" if row.file else ""
        return f"{gates}{': ' * bool(gates)}{row.detail}{place}"
    parts = [part for part in (gates, row.detail) if part]
    return "; ".join(parts + [CONFIG[what] for what in row.config])
