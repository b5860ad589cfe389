"""`revert`: back to the installed bytes."""

from __future__ import annotations

import argparse

from vllm_eagle3_patches import operations, target
from vllm_eagle3_patches.cli import common, output

EXAMPLE = "vllm-eagle3-patch revert --python /opt/venv/bin/python"


def configure(parser: argparse.ArgumentParser) -> None:
    common.model(parser, "take back this target only (default: everything)")
    parser.add_argument(
        "--force",
        action="store_true",
        help="restore files that others changed since too; keeps a copy of them elsewhere",
    )


def execute(args: argparse.Namespace) -> int:
    wanted = None if args.model is None else target.request(args.model)
    args.wanted = wanted
    found = common.find(args)
    report = operations.revert(found, wanted, force=args.force)
    count = len(report.changed)
    whose = "as they were before apply" if report.state == "foreign" else "as vLLM installed them"
    verdict = f"{count} files are {whose} again" if count else "nothing written"
    if count and report.state == "patched":  # other targets stay open, maybe in the same files
        verdict = f"{count} files changed: what only {args.model} needed is as installed again"
    return output.emit(args, found, wanted, report, verdict)
