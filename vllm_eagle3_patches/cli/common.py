"""What every subcommand begins with: the installation and the target that were asked for."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vllm_eagle3_patches import installation, target
from vllm_eagle3_patches.errors import PatchError
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.sources import Sources

if TYPE_CHECKING:
    from vllm_eagle3_patches.preflight.case import Case

MODEL_HELP = (
    "folder with config.json, Hugging Face id in the local cache, or architecture name "
    "(default: Kimi-K2.5)"
)


class _Once(argparse.Action):
    """As "store", but of two values neither is dropped without a word."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} was given twice; run the command once for each")
        setattr(namespace, self.dest, values)


def model(parser: argparse.ArgumentParser, said: str = MODEL_HELP) -> None:
    """The option `--model`."""
    parser.add_argument("--model", action=_Once, help=said)


def find(args: argparse.Namespace) -> Installation:
    """The installation; kept on `args` so that an error report can name it."""
    found = installation.find(
        python=args.python,
        site_packages=args.site_packages,
        allow_editable=args.allow_editable,
    )
    args.installation = found
    return found


def examined(args: argparse.Namespace, words: Sequence[str]) -> tuple[Installation, Sources, Case]:
    """The installation, its sources, and the pair and options asked for, read as its own parser
    reads them.

    `words` are those of a command of the user's own.
    """
    from vllm_eagle3_patches import preflight  # a plain check is as fast without it

    asked = (args.model, args.drafter, args.serve_args, words)
    try:
        found = find(args)
    except PatchError:
        preflight.case(*asked)  # what is wrong with the words themselves comes first
        raise
    sources = Sources(found.root)
    return found, sources, preflight.case(*asked, preflight.Declared(sources))


def request(args: argparse.Namespace) -> target.Request:
    """The target as asked for, not looked up yet."""
    wanted = target.request(args.model)
    args.wanted = wanted
    return wanted


def native_since(wanted: target.Request, version: str) -> str:
    """ " (since vLLM X)", where that release is not newer than the installed one."""
    since = target.NATIVE_SINCE.get(wanted.architecture)
    if since is None:
        return ""
    from packaging.version import InvalidVersion, Version

    try:
        return f" (since vLLM {since})" if Version(version) >= Version(since) else ""
    except InvalidVersion:  # a fork's own: only the source tells
        return ""


def allow_modified(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allow-modified",
        action="store_true",
        help="edit files that differ from RECORD too, if their structure is recognised",
    )
