"""Parses the command line and dispatches to one module for each subcommand."""

from __future__ import annotations

import argparse
import atexit
import gc
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import ClassVar, NoReturn

from vllm_eagle3_patches import __version__
from vllm_eagle3_patches.cli import check, output, signals
from vllm_eagle3_patches.errors import PatchError, UsageError, WriteError

COMMANDS = {
    "check": "which gates stand between this vLLM and EAGLE-3; writes nothing",
    "apply": "open them: all or nothing, and nothing on a second run",
    "revert": "back to the installed bytes",
    "diff": "the unified diff that apply makes, or has made",
    "explain": "a server log: the root cause and the gate it belongs to, or how it is doing",
    "rehearse": "the whole start-up on small twins of the models: the installed engine itself",
}
EXIT_CODES = """\
exit codes: 0 everything asked holds; 1 check: a gate is closed or the drafter will fail, explain:
a failure was found; 2 usage; 3 refused: structure or version (or log) not recognised; 4 integrity:
files changed by someone else, or a run was interrupted; 5 no vLLM, or more than one; 6 cannot
write: permissions, space, or another run at work; 130 interrupted"""


class _Parser(argparse.ArgumentParser):
    """As argparse's, but with `--json` a usage error is a JSON object too."""

    given: ClassVar[Sequence[str]] = ()

    def error(self, message: str) -> NoReturn:
        if _wants_json(self.given):
            _usage(self.given, message, f"{self.prog} --help")
        super().error(message)


def _wants_json(words: Sequence[str]) -> bool:
    """Whether `--json` is among the words, in a form that argparse takes for it."""
    own = words[: list(words).index("--")] if "--" in words else words
    return any(re.match(r"--j(s(on?)?)?(=|$)", word) for word in own)


def _usage(words: Sequence[str], what: str, following: str) -> None:
    """A usage error as a JSON object."""
    command = next((word for word in words if word in COMMANDS), None)
    output.bare(command, UsageError.exit, what, following)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from vllm_eagle3_patches.series import available

        pinned = ", ".join(series.version for series in available()) or "none"
        print(f"vllm-eagle3-patch {__version__}")
        print(f"pinned patches for vLLM: {pinned}; other sources by content; native from 0.18.0")
        parser.exit()


def _common() -> _Parser:
    common = _Parser(add_help=False)
    where = common.add_argument_group("where vLLM is (default: this environment)")
    where.add_argument("--python", metavar="EXE", help="the interpreter vLLM is installed for")
    where.add_argument("--site-packages", metavar="DIR", help="the folder vLLM is installed in")
    where.add_argument(
        "--allow-editable", action="store_true", help="work on an editable checkout too"
    )
    common.add_argument("--json", action="store_true", help="one JSON object on standard output")
    common.add_argument("--quiet", action="store_true", help="print errors only")
    return common


def parser() -> argparse.ArgumentParser:
    top = _Parser(
        prog="vllm-eagle3-patch",
        description="Gives EAGLE-3 speculative decoding to the vLLM that is already installed.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="versions, and the vLLM pinned")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    common = _common()
    for name, summary in COMMANDS.items():
        module = import_module(f"vllm_eagle3_patches.cli.{name}")
        sub = commands.add_parser(
            name,
            help=summary,
            description=f"{name}: {summary}.",
            parents=[common],
            epilog=f"example: {module.EXAMPLE}\n\n{EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.configure(sub)
        sub.set_defaults(execute=module.execute)
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit code (2 for usage errors, as argparse does)."""
    output.prepare()
    words = sys.argv[1:] if argv is None else list(argv)
    collecting = gc.isenabled()
    # A short run, and syntax trees hold no cycles. Looking for some now, and once more at the end
    # of the process, would take a third of the time of `check`.
    gc.disable()
    atexit.register(gc.freeze)
    args = argparse.Namespace(command=None, json=_wants_json(words))
    try:
        try:
            typed = check.retyped(words)
            if typed is not None:
                args.exit = UsageError.exit
                return _without_dashes(words, typed)
            _Parser.given = words
            args = parser().parse_args(words)
            with signals.handled():
                return _run(args)
        finally:
            if sys.stdout is not None:  # it is where it was closed from the start
                sys.stdout.flush()
    except BrokenPipeError:  # who reads no more of the answer still gets its exit code
        output.discard()
        return int(getattr(args, "exit", 0))
    except OSError as error:  # of standard output itself
        output.discard()
        failure = WriteError(f"the answer cannot be written: {error.strerror or error}")
        if args.command in ("apply", "revert"):
            failure.next = "it may have done its work: run vllm-eagle3-patch check"
        with suppress(OSError):  # standard error may be as full
            print(f"vllm-eagle3-patch: error: {failure}", file=sys.stderr)
        return WriteError.exit
    except KeyboardInterrupt:
        return output.interrupted(args)
    finally:
        if collecting:
            gc.enable()


def _without_dashes(words: Sequence[str], typed: str) -> int:
    error = UsageError("put -- before the command of your own", next=typed)
    if _wants_json(words):
        _usage(words, error.what, typed)
    print(f"vllm-eagle3-patch: error: {error}", file=sys.stderr)
    return error.exit


def _run(args: argparse.Namespace) -> int:
    try:
        code: int = args.execute(args)
        return code
    except BrokenPipeError:
        raise
    except OSError as error:
        if hasattr(args, "exit"):  # all is done, and the answer cannot be written
            raise
        failure: PatchError = _refused(error)
    except PatchError as error:
        failure = error
    args.exit = failure.exit
    output.failure(args, failure)
    return failure.exit


def _refused(error: OSError) -> WriteError:
    return WriteError(f"the system refused: {error.strerror or error}", where=error.filename)
