"""`check`: the state of every gate, reading only."""

from __future__ import annotations

import argparse

from vllm_eagle3_patches import operations
from vllm_eagle3_patches.cli import common, output
from vllm_eagle3_patches.gates.base import State
from vllm_eagle3_patches.target import NATIVE_SINCE

EXAMPLE = "vllm-eagle3-patch check --model DeepseekV3ForCausalLM --python /opt/venv/bin/python"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help=common.MODEL_HELP)
    common.allow_modified(parser)


def execute(args: argparse.Namespace) -> int:
    wanted = common.request(args)
    found = common.find(args)
    report = operations.check(found, wanted, allow_modified=args.allow_modified)
    states = [finding.state for finding in report.findings]
    closed, refused = states.count(State.CLOSED), states.count(State.REFUSED)
    if refused:
        verdict = f"EAGLE-3 cannot be opened: {refused} refused, {closed} closed; nothing to apply"
    elif closed:
        verdict = f"EAGLE-3 will not start: {closed} closed. Next: {output.again(args, 'apply')}"
    elif State.OPEN in states:
        verdict = f"EAGLE-3 is open. To take it back: {output.again(args, 'revert')}"
    else:
        since = NATIVE_SINCE.get(wanted.architecture)
        verdict = f"EAGLE-3 is native here{f' (since vLLM {since})' if since else ''}"
    return output.emit(args, found, wanted, report, verdict)
