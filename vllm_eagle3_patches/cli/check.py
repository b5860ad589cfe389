"""`check`: the state of every gate, and with a drafter every fault of the two; with `--all` every
architecture; reading only."""

from __future__ import annotations

import argparse

from vllm_eagle3_patches import operations
from vllm_eagle3_patches.cli import common, output
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import State
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.operations import Report
from vllm_eagle3_patches.sources import Sources
from vllm_eagle3_patches.target import Request

EXAMPLE = "vllm-eagle3-patch check --model DeepseekV3ForCausalLM --python /opt/venv/bin/python"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help=common.MODEL_HELP)
    parser.add_argument(
        "--all", action="store_true", help="list every architecture of this vLLM with its state"
    )
    parser.add_argument("--drafter", metavar="D", help="an EAGLE-3 drafter: folder or cached id")
    parser.add_argument("--serve-args", metavar="ARGS", help="options you give to `vllm serve`")
    parser.add_argument(
        "command_line",
        nargs="*",
        metavar="-- vllm serve MODEL …",
        help="your own command, in place of --model, --drafter and --serve-args",
    )
    common.allow_modified(parser)


def execute(args: argparse.Namespace) -> int:
    if args.all:
        from vllm_eagle3_patches.cli import listing

        return listing.execute(args)
    case = None
    if args.drafter is not None or args.serve_args is not None or args.command_line:
        from vllm_eagle3_patches import preflight  # a plain check is as fast without it

        case = preflight.case(args.model, args.drafter, args.serve_args, args.command_line)
        args.model = case.model
    wanted = common.request(args)
    found = common.find(args)
    if case is None:
        report = operations.check(found, wanted, allow_modified=args.allow_modified)
        return output.emit(
            args, found, wanted, report, _verdict(args, wanted, report, found.version)
        )
    report = _gates(args, found, wanted)
    context = case.context(Sources(found.root), found.version, wanted)
    verdict = _verdict(args, wanted, report, found.version)
    return output.emit(args, found, wanted, report, verdict, preflight.examine(context))


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
