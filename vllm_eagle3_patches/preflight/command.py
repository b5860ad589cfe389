"""The user's own `vllm serve` command line, read as vLLM's argument parser reads it.

Source: `FlexibleArgumentParser.parse_args` (`vllm/utils/__init__.py` to 0.11.0,
`vllm/utils/argparse_utils.py` later): dashes and underscores are the same, `--a.b value` fills
the JSON of `--a` and replaces it when it is given too, `k` is 1000 and `K` 1024.  Options this
module does not know are passed over.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vllm_eagle3_patches.errors import UsageError
from vllm_eagle3_patches.preflight.findings import Finding, error, warning

SHORT = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-q": "--quantization",
    "-sc": "--speculative-config",
    "-ac": "--attention-config",
}
# Flags without a value that stand before the model now and then; `--enable-…` and the like too.
FLAGS = ("trust-remote-code", "enforce-eager", "async-scheduling", "language-model-only")
FLAG_PREFIXES = ("enable-", "disable-", "no-", "skip-")
SPECULATIVE = "speculative-config"
# 0.24.0 on: single options for three keys of the speculative configuration.
SINGLE = {
    "spec-method": "method",
    "spec-model": "model",
    "spec-tokens": "num_speculative_tokens",
}
# Options of vLLM's V0 engine; the V1 parser knows none of them.
REMOVED = ("speculative-model", "num-speculative-tokens", "speculative-draft-tensor-parallel-size")
UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
HOW = '--speculative-config \'{"method": "eagle3", "model": …, "num_speculative_tokens": 3}\''


@dataclass(frozen=True)
class Serve:
    """What a command line says, in so far as it matters here.

    Attributes:
        model: the target, None where it is not named.
        speculative: the speculative configuration, None where there is none.
        options: the other options by name without dashes; a flag's value is "true".
        environment: `NAME=value` words before the command.
        findings: what is wrong with the command line itself.
    """

    model: str | None = None
    speculative: dict[str, Any] | None = None
    options: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()

    def integer(self, name: str) -> int | None:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgKMG]?)", self.options.get(name, ""))
        return int(float(match[1]) * UNITS.get(match[2], 1)) if match else None

    @property
    def tensor_parallel(self) -> int:
        return self.integer("tensor-parallel-size") or 1

    @property
    def pipeline_parallel(self) -> int:
        return self.integer("pipeline-parallel-size") or 1

    @property
    def attention_backend(self) -> str | None:
        """The backend asked for by an option."""
        nested = _object(self.options.get("attention-config", "")) or {}
        named = (
            self.options.get("attention-backend")
            or self.options.get("attention-config.backend")
            or nested.get("backend")
        )
        return None if not named or str(named).lower() == "auto" else str(named).upper()


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_flag(name: str) -> bool:
    return name in FLAGS or name.startswith(FLAG_PREFIXES)


def _options(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Options with their values in order, and the words that belong to none."""
    options: list[tuple[str, str]] = []
    rest: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        key, equals, value = word.partition("=")
        head, dot, tail = key.partition(".")
        head = SHORT.get(head, head)
        if not head.startswith("--") or head == "--":
            # `-O3`, `-dp 8`: a short option of no interest; its value looks like a word.
            if re.fullmatch(r"-[a-z]+", word) and position < len(words):
                position += not words[position].startswith("-")
            elif not word.startswith("-"):
                rest.append(word)
            continue
        name = head[2:].replace("_", "-") + (f".{tail}" if dot else "")
        if not equals:
            following = words[position] if position < len(words) else "--"
            takes = not following.startswith("-") or re.fullmatch(r"-\d+", following) is not None
            if takes and (not _is_flag(name) or following.lower() in ("true", "false")):
                value = following
                position += 1
            else:
                value = "true"
        options.append((name, value))
    return options, rest


def parse(words: Iterable[str]) -> Serve:
    """Reads the options that follow `vllm serve MODEL`."""
    options, rest = _options(list(words))
    plain: dict[str, str] = {}
    dotted: dict[str, Any] = {}
    findings: list[Finding] = []
    for name, value in options:
        head, _, tail = name.partition(".")
        if head == SPECULATIVE and tail:
            _nest(dotted, tail.replace("-", "_").split("."), value)
        else:
            plain[name] = value
    speculative = _speculative(plain.pop(SPECULATIVE, None), dotted, findings)
    for option, key in SINGLE.items():
        if option in plain:
            value = plain.pop(option)
            speculative = {**(speculative or {}), key: _typed(value)}
    removed = [f"--{name}" for name in REMOVED if name in plain]
    if removed:
        findings.append(
            error(
                "argument",
                f"vLLM's parser refuses {' and '.join(removed)}: options of its V0 engine",
                f"use {HOW}",
            )
        )
    model = plain.pop("model", None) or (rest[0] if rest else None)
    return Serve(model, speculative, plain, {}, tuple(findings))


def _typed(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _nest(into: dict[str, Any], keys: list[str], value: str) -> None:
    for key in keys[:-1]:
        inner = into.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        into = inner
    into[keys[-1]] = _typed(value)


def _speculative(
    given: str | None, dotted: dict[str, Any], findings: list[Finding]
) -> dict[str, Any] | None:
    if given is None:
        return dotted or None
    if dotted:
        findings.append(
            warning(
                "argument",
                "--speculative-config is given as JSON and key by key; vLLM keeps only "
                f"{', '.join(sorted(dotted))} and drops the JSON",
                "give all keys in one way",
            )
        )
        return dotted
    parsed = _object(given)
    if parsed is None:
        findings.append(
            error(
                "argument",
                f"--speculative-config is not a JSON object: {given[:80]}",
                f"quote it for the shell: {HOW}",
            )
        )
    return parsed or {}


def command_line(words: Sequence[str]) -> Serve:
    """Reads a whole command: `[NAME=value …] vllm serve MODEL …`, or the API server's module.

    Raises:
        UsageError: it is neither.
    """
    rest = list(words)
    environment: dict[str, str] = {}
    while rest and (rest[0] == "env" or re.match(r"[A-Za-z_]\w*=", rest[0])):
        name, equals, value = rest.pop(0).partition("=")
        if equals:
            environment[name] = value
    for number, word in enumerate(rest):
        serves = word == "serve" and number and rest[number - 1].split("/")[-1] == "vllm"
        if serves or word.startswith("vllm.entrypoints."):
            found = parse(rest[number + 1 :])
            return Serve(found.model, found.speculative, found.options, environment, found.findings)
    raise UsageError(
        "this is not a vllm serve command",
        where=shlex.join(words)[:200],
        next="vllm-eagle3-patch check -- vllm serve MODEL --speculative-config '{…}'",
    )


def arguments(text: str) -> Serve:
    """Reads the string of `--serve-args`.

    Raises:
        UsageError: its quotes do not match.
    """
    try:
        return parse(shlex.split(text))
    except ValueError as problem:
        raise UsageError(f"--serve-args: {problem}", where=text[:200]) from None
