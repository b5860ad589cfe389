"""`diff`: the unified diff that apply makes, for `patch -p1 -d site-packages`."""

from __future__ import annotations

import argparse
import json
import sys

from vllm_eagle3_patches import operations
from vllm_eagle3_patches.cli import common, output

EXAMPLE = "vllm-eagle3-patch diff | patch -p1 -d /opt/venv/lib/python3.12/site-packages"


def configure(parser: argparse.ArgumentParser) -> None:
    common.model(parser)
    common.allow_modified(parser)


def execute(args: argparse.Namespace) -> int:
    wanted = common.request(args)
    found = common.find(args)
    text = operations.diff(found, wanted, allow_modified=args.allow_modified)
    if args.json:
        print(json.dumps({**output.facts(args, 0, found, wanted), "diff": text}))
    elif not args.quiet and sys.stdout is not None:
        sys.stdout.buffer.write(text.encode())  # the bytes of the files, whatever the locale
    return 0
