"""`rehearse`: boots the installed engine on small twins of the models, and says what passes."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_eagle3_patches import interpreter, operations
from vllm_eagle3_patches.cli import common, output
from vllm_eagle3_patches.errors import UsageError, WriteError
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.target import Request

if TYPE_CHECKING:  # imported when needed: the other commands start without them
    from vllm_eagle3_patches.preflight.case import Case
    from vllm_eagle3_patches.rehearsal.diagnosis import Diagnosis
    from vllm_eagle3_patches.rehearsal.prepare import Pair
    from vllm_eagle3_patches.rehearsal.report import Rehearsal
    from vllm_eagle3_patches.rehearsal.run import Result

EXAMPLE = "vllm-eagle3-patch rehearse MODEL --drafter D"
EXIT_CODES = (
    "Exit code 0: every stage passed and check finds no error; 1: one failed, or it does; 3: this "
    "build of vLLM cannot run them all; 130: interrupted, and nothing is left."
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = f"{parser.description} {EXIT_CODES}"
    parser.add_argument("--drafter", metavar="D", help="an EAGLE-3 drafter: folder or cached id")
    parser.add_argument("--serve-args", metavar="ARGS", help="of vllm serve: --serve-args='--a 1'")
    parser.add_argument(
        "--tensor-parallel-size", type=_size, metavar="N", help="GPUs to use (default: 1)"
    )
    parser.add_argument(
        "--enforce-eager", action="store_true", help="without torch.compile and CUDA graphs"
    )
    parser.add_argument(
        "--apply",
        action="store_true",
        help="rehearse with the gates opened, in a throw-away copy of vLLM's files",
    )
    parser.add_argument("--keep", metavar="DIR", help="leave the twins and the log in DIR")
    parser.add_argument(
        "words",
        nargs="*",
        metavar="MODEL | -- vllm serve MODEL …",
        help="folder with config.json or cached id; or your own command, after --",
    )
    common.allow_modified(parser)


def execute(args: argparse.Namespace) -> int:
    """The exit code: see EXIT_CODES."""
    try:
        code = _execute(args)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # the child is gone then, and the outcome not known
        output.discard()
        raise WriteError("nobody reads standard output any more: not rehearsed") from None


def _execute(args: argparse.Namespace) -> int:
    from vllm_eagle3_patches import preflight
    from vllm_eagle3_patches.rehearsal import prepare, run

    keep = _keep(args.keep)
    words: Sequence[str] = args.words
    args.model = words[0] if len(words) == 1 else None
    if args.model == "":
        raise UsageError("MODEL is empty", next=EXAMPLE)
    found, sources, case = common.examined(args, words if len(words) > 1 else [])
    if args.tensor_parallel_size is not None:
        run.can_be_parallel(found, args.tensor_parallel_size)
    pair = prepare.pair(case, args.tensor_parallel_size or 1)
    args.model = str(pair.folder)
    try:
        wanted = common.request(args)
    except UsageError as problem:
        problem.next = "complete the model's config.json: a twin is made of nothing else"
        raise
    contents = _contents(args, found, wanted)
    context = case.context(sources.with_overlay(contents or {}), found.version, wanted)
    rehearsed = replace(
        _rehearse(args, case, pair, found, contents, keep),
        findings=preflight.examine(context),
        unseen=context.unseen,
        bare=context.drafter.weights.absent,
    )
    if args.json:
        from vllm_eagle3_patches.rehearsal import report

        facts = output.facts(args, rehearsed.exit, found, wanted)
        print(json.dumps({**facts, **report.as_json(rehearsed)}))
    else:
        _print(args, rehearsed)
    return rehearsed.exit


def _size(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


def _keep(name: str | None) -> Path | None:
    """The folder to keep the twins in, which must be new or empty."""
    if name is None:
        return None
    if not name:
        raise UsageError("--keep is empty", next="--keep DIR, a new or empty folder")
    folder = Path(name).absolute()
    if folder.is_dir():
        if any(folder.iterdir()):
            raise UsageError("the folder to keep the twins in is not empty", where=folder)
    elif os.path.lexists(folder):
        raise UsageError("--keep names something that is no folder", where=folder)
    above = next(path for path in (folder, *folder.parents) if path.exists())
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        raise WriteError("the folder to keep the twins in cannot be written", where=above)
    return folder


def _contents(
    args: argparse.Namespace, found: Installation, wanted: Request
) -> dict[str, bytes] | None:
    """The patched bytes, with --apply."""
    if not args.apply:
        return None
    return operations.contents(found, wanted, allow_modified=args.allow_modified)


def _rehearse(
    args: argparse.Namespace,
    case: Case,
    pair: Pair,
    found: Installation,
    contents: dict[str, bytes] | None,
    keep: Path | None,
) -> Rehearsal:
    from vllm_eagle3_patches.rehearsal import diagnosis, memory, overlay, prepare, report, run

    exe = interpreter.of(found, args.python)
    if not args.json and not args.quiet:
        print(f"vLLM {found.version} ({found.distribution}), run by {exe}")
        print(f"  a twin of {pair.folder}: {report.sizes(pair)}\n", flush=True)
    with run.folder(keep) as place:
        prepare.write(pair, place)
        path = [str(overlay.make(found, contents, place / "vllm"))] if contents else []
        path += interpreter.added(found, exe)
        words = _options(args, case)
        request = prepare.request(case, pair, place, eager=_eager(args, case), words=words)
        needed = prepare.variables(pair, cpu=run.is_cpu(found))
        env = run.environment(place, case.serve.environment, needed, path)
        outcome = run.run(exe, place, request, env, _tell(args))
        outcome.facts["eager"] = request["eager"]
    failed = outcome.failed
    diagnosed = None if failed is None else diagnosis.of(outcome, failed)
    parallel = case.serve.tensor_parallel if args.tensor_parallel_size is None else pair.parallel
    estimate = memory.estimate(
        pair.folder, case.drafter, pair.config, pair.states, parallel,
        case.serve.integer("max-num-batched-tokens"),
    )  # fmt: skip
    return report.Rehearsal(
        pair, outcome, _fixed(args, diagnosed), estimate, tuple(contents or ()), case.serve.options
    )


def _options(args: argparse.Namespace, case: Case) -> list[str]:
    """The user's own words, which vLLM's parser reads in the child."""
    if len(args.words) > 1:
        from vllm_eagle3_patches.preflight import command

        return command.parsed(args.words)
    if not args.serve_args:
        return []
    return ["serve", str(case.model), *shlex.split(args.serve_args)]


def _eager(args: argparse.Namespace, case: Case) -> bool:
    return args.enforce_eager or case.serve.options.get("enforce-eager", "false") == "true"


def _fixed(args: argparse.Namespace, diagnosed: Diagnosis | None) -> Diagnosis | None:
    """With the command that opens the gate before any other advice, where one does."""
    if diagnosed is None or not diagnosed.apply:
        return diagnosed
    command = output.again(args, "apply")
    fix = f"{command}; {diagnosed.fix}" if diagnosed.fix else command
    return replace(diagnosed, fix=fix)


def _tell(args: argparse.Namespace) -> Callable[[Result], None]:
    from vllm_eagle3_patches.rehearsal import report

    def tell(result: Result) -> None:
        if not args.quiet:
            where = sys.stderr if args.json else sys.stdout
            coloured = not args.json and output.coloured()
            print(report.line(result, coloured=coloured), file=where, flush=True)

    return tell


def _print(args: argparse.Namespace, rehearsed: Rehearsal) -> None:
    from vllm_eagle3_patches.rehearsal import report

    if rehearsed.exit or not args.quiet:
        if args.quiet and rehearsed.outcome.failed is not None:
            print(report.line(rehearsed.outcome.failed))
        if not args.quiet or rehearsed.outcome.failed is not None:
            print("\n".join(report.lines(rehearsed)))
        print(report.verdict(rehearsed))
