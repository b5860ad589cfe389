"""`apply`: opens the target's gates."""

from __future__ import annotations

import argparse

from vllm_eagle3_patches import operations
from vllm_eagle3_patches.cli import common, output
from vllm_eagle3_patches.gates.base import State

EXAMPLE = "vllm-eagle3-patch apply --model /models/Kimi-K2.5"


def configure(parser: argparse.ArgumentParser) -> None:
    common.model(parser)
    parser.add_argument("--dry-run", action="store_true", help="do everything but write")
    common.allow_modified(parser)


def execute(args: argparse.Namespace) -> int:
    wanted = common.request(args)
    found = common.find(args)
    report = operations.apply(
        found, wanted, allow_modified=args.allow_modified, dry_run=args.dry_run
    )
    count = len(report.changed)
    how = {"series": "the pinned patches", "codemod": "codemods"}.get(report.source, "")
    if args.dry_run and count:
        verdict = f"dry run: {count} files would be changed by {how}, every proof holds"
    elif count:
        verdict = (
            f"EAGLE-3 is open: {count} files changed by {how}. "
            f"To take it back: {output.again(args, 'revert')}"
        )
    elif any(finding.state is State.OPEN for finding in report.findings):
        verdict = "EAGLE-3 was open already: nothing written"
    else:
        since = common.native_since(wanted, found.version)
        verdict = f"EAGLE-3 is native here{since}: nothing written"
    return output.emit(args, found, wanted, report, verdict)
