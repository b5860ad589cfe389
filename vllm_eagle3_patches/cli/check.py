"""`check`: the state of every gate, and with a drafter every fault of the two; with `--all` every
architecture; reading only."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Sequence

from vllm_eagle3_patches import operations
from vllm_eagle3_patches.cli import common, output
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import State
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.operations import Report
from vllm_eagle3_patches.target import Request

EXAMPLE = "vllm-eagle3-patch check --model DeepseekV3ForCausalLM --python /opt/venv/bin/python"


def configure(parser: argparse.ArgumentParser) -> None:
    common.model(parser)
    parser.add_argument(
        "--all", action="store_true", help="list every architecture of this vLLM with its state"
    )
    parser.add_argument("--drafter", metavar="D", help="an EAGLE-3 drafter: folder or cached id")
    parser.add_argument("--serve-args", metavar="ARGS", help="of vllm serve: --serve-args='--a 1'")
    parser.add_argument(
        "command_line",
        nargs="*",
        metavar="-- vllm serve MODEL …",
        help="your own command, in place of --model, --drafter and --serve-args",
    )
    common.allow_modified(parser)


def retyped(words: Sequence[str]) -> str | None:
    """The command line with the `--` that it lacks before `vllm serve`; None where all is well."""
    if not words or words[0] not in ("check", "rehearse") or "--" in words:
        return None
    number = next((n for n in range(1, len(words)) if _serves(words, n)), None)
    if number is None:
        return None
    if not any(word.startswith("-") for word in words[number:]):
        return None  # argparse takes these words as they are
    while number > 1 and _prelude(words[number - 1], words[number]):
        number -= 1
    return shlex.join(["vllm-eagle3-patch", *words[:number], "--", *words[number:]])


def _serves(words: Sequence[str], number: int) -> bool:
    word, following = words[number], "".join(words[number + 1 : number + 2])
    called = word.rpartition("/")[2] == "vllm" and following == "serve"
    return called or word.startswith("vllm.entrypoints.")


def _prelude(word: str, following: str) -> bool:
    """Whether the word belongs to a command that begins before `vllm`: `A=1 python -m …`."""
    if following == "-m":
        return "python" in word.rpartition("/")[2]
    return word in ("-m", "env", "exec") or re.match(r"[A-Za-z_]\w*=", word) is not None


def execute(args: argparse.Namespace) -> int:
    if args.all:
        from vllm_eagle3_patches.cli import listing

        return listing.execute(args)
    case = None
    if args.drafter is not None or args.serve_args is not None or args.command_line:
        found, sources, case = common.examined(args, args.command_line)
        args.model = case.model
    wanted = common.request(args)
    if case is None:
        found = common.find(args)
        report = operations.check(found, wanted, allow_modified=args.allow_modified)
        return output.emit(
            args, found, wanted, report, _verdict(args, wanted, report, found.version)
        )
    from vllm_eagle3_patches import preflight

    report = _gates(args, found, wanted)
    context = case.context(sources, found.version, wanted)
    verdict = _verdict(args, wanted, report, found.version)
    findings = preflight.examine(context)
    return output.emit(args, found, wanted, report, verdict, findings, context.unseen)


def _gates(args: argparse.Namespace, found: Installation, wanted: Request) -> Report:
    """The gates' report; a target they do not recognise is a problem beside the findings."""
    try:
        return operations.check(found, wanted, allow_modified=args.allow_modified)
    except RefusedError as error:
        return Report("editable" if found.editable else "pristine", problem=error)


def _verdict(args: argparse.Namespace, wanted: Request, report: Report, version: str) -> str:
    states = [finding.state for finding in report.findings]
    closed, refused = states.count(State.CLOSED), states.count(State.REFUSED)
    if refused:
        return f"EAGLE-3 cannot be opened: {refused} refused, {closed} closed; nothing to apply"
    if closed:
        return f"EAGLE-3 will not start: {closed} closed. Next: {output.again(args, 'apply')}"
    if State.OPEN in states:
        return f"EAGLE-3 is open. To take it back: {output.again(args, 'revert')}"
    return f"EAGLE-3 is native here{common.native_since(wanted, version)}"
