"""What the user asks to have examined: a target, a drafter, and how they are to be served."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vllm_eagle3_patches.errors import UsageError
from vllm_eagle3_patches.preflight import command, folder, weights
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.declared import Declared
from vllm_eagle3_patches.preflight.drafter import is_eagle3, is_speculators, load
from vllm_eagle3_patches.preflight.facts import KIMI_K25, TargetFacts
from vllm_eagle3_patches.preflight.findings import Severity
from vllm_eagle3_patches.sources import Sources
from vllm_eagle3_patches.target import KIMI_K25 as KIMI_K25_CLASS
from vllm_eagle3_patches.target import Request

FILES = f"{folder.CONFIG} and {folder.WEIGHTS}"
NAME_IT = f"--drafter D, or {command.HOW.replace(command.GAP, 'D')}"


@dataclass(frozen=True)
class Case:
    """The names are resolved, and the drafter's files read; vLLM is not looked at yet.

    Attributes:
        model: the target as `--model` takes it, None for the default.
        drafter: the drafter's folder.
        raw: the drafter's config.json.
        serve: the command line.
    """

    model: str | None
    drafter: Path
    raw: dict[str, Any]
    serve: command.Serve

    def context(self, sources: Sources, version: str, wanted: Request) -> Context:
        """The combination with an installed vLLM.

        Raises:
            UsageError: the target's config.json cannot be read.
        """
        config: dict[str, Any] = {}
        if self.model is None and wanted.architecture == KIMI_K25_CLASS:
            config = dict(KIMI_K25)
        elif self.model is not None and (Path(self.model).is_dir() or "/" in self.model):
            where = folder.locate(self.model, what="model", files=folder.CONFIG)
            config = folder.read_config(where, what="model")
        held = weights.look(self.drafter)
        # `"method": "eagle"` makes vLLM look for the EAGLE-1 class; where the head is surely an
        # EAGLE-3 one that is a fault of the arguments alone, and it is examined as what it is.
        eagle1 = (self.serve.speculative or {}).get("method") == "eagle"
        method = "eagle" if eagle1 and not is_eagle3(self.raw, held) else "eagle3"
        drafter = load(sources, self.drafter, self.raw, held, method)
        target = TargetFacts(config, wanted.architecture)
        return Context(sources, version, target, drafter, self.serve)


def case(
    model: str | None,
    drafter: str | None,
    serve_args: str | None,
    words: Sequence[str],
    declared: Declared | None = None,
) -> Case:
    """Puts together `--model`, `--drafter`, `--serve-args` and the command after `--`.

    `declared` are the options of the installed vLLM; without them the words are shared out by
    what is usual.

    Raises:
        UsageError: they contradict each other, name no drafter, or name one that is not there.
    """
    if words and serve_args is not None:
        raise UsageError("give the options in --serve-args or a whole command after --, not both")
    if drafter is not None and not drafter.strip():
        raise UsageError("--drafter is empty", next=NAME_IT)
    serve = (
        command.command_line(words, declared)
        if words
        else command.arguments(serve_args or "", declared)
    )
    model = _same("the model", model, serve.model)
    named = (serve.speculative or {}).get("model")
    if drafter is not None and named is None and serve.speculative is not None:
        serve = replace(serve, speculative={**serve.speculative, "model": drafter})
        named = drafter
    if named is not None and (not isinstance(named, str) or not named.strip()):
        if drafter is None:
            what = (
                f'"model" of the speculative config is {json.dumps(named)}, which names no drafter'
            )
            raise UsageError(what, next=NAME_IT)
        named = None
    drafter = _same("the drafter", drafter, named)
    if drafter is None:
        model, drafter = _speculators_model(model, serve if words else None, serve)
    where = folder.locate(drafter, what="drafter", files=FILES)
    if model is not None and _is_there(model, where):
        raise UsageError("the model is named as its own drafter", where=where, next=NAME_IT)
    return Case(model, where, folder.read_config(where, what="drafter"), serve)


def _same(what: str, one: str | None, other: str | None) -> str | None:
    if one is not None and other is not None and one != other:
        raise UsageError(f"{what} is named twice, as {one} and as {other}")
    return one if one is not None else other


def _unnamed(serve: command.Serve) -> UsageError:
    """No drafter; where the command line itself is wrong, what that is comes first."""
    wrong = [finding for finding in serve.findings if finding.severity is Severity.ERROR]
    if not wrong:
        what = "no drafter is named"
        if serve.speculative:
            what += ": the speculative config has no `model`, only " + ", ".join(serve.speculative)
        return UsageError(what, next=NAME_IT)
    details = "; ".join(finding.detail for finding in wrong)
    return UsageError(f"no drafter could be read: {details}", next=wrong[0].fix)


def _is_there(model: str, where: Path | None = None) -> bool:
    """Whether the model's files are at hand; with `where`, whether they are in that folder."""
    try:
        found = folder.locate(model, what="model", files=folder.CONFIG)
        return where is None or found.samefile(where)
    except (UsageError, OSError):
        return False


def _speculators_model(
    model: str | None, serve: command.Serve | None, given: command.Serve
) -> tuple[str, str]:
    """`vllm serve SPECULATOR`: a speculators-format drafter names its target itself."""
    missing = _unnamed(serve or given)
    if model is None or serve is None or serve.speculative is not None or model.isidentifier():
        raise missing
    if serve.findings and not _is_there(model):
        raise missing
    where = folder.locate(model, what="model", files=folder.CONFIG)
    raw = folder.read_config(where, what="model")
    settings = raw.get("speculators_config")
    if not is_speculators(raw) or not isinstance(settings, dict):
        raise missing
    verifier = settings.get("verifier")
    name = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    if not isinstance(name, str):
        raise UsageError("this speculator's config.json names no verifier model", where=where)
    return name, model
