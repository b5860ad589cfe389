"""The user's own `vllm serve` command line, read as vLLM's argument parser reads it.

Source: `FlexibleArgumentParser.parse_args` (`vllm/utils/__init__.py` to 0.11.0,
`vllm/utils/argparse_utils.py` later): dashes and underscores are the same, `--a.b value` fills
the JSON of `--a` and replaces it when it is given too, `k` is 1000 and `K` 1024.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vllm_eagle3_patches.errors import UsageError
from vllm_eagle3_patches.preflight import config_file, snippets
from vllm_eagle3_patches.preflight.declared import Declared
from vllm_eagle3_patches.preflight.findings import Finding, error, warning
from vllm_eagle3_patches.preflight.words import REMOVED, split

SPECULATIVE = "speculative-config"
# 0.24.0 on: single options for three keys of the speculative configuration.
SINGLE = {
    "spec-method": "method",
    "spec-model": "model",
    "spec-tokens": "num_speculative_tokens",
}
UNITS = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
GAP = "…"
HOW = '--speculative-config \'{"method": "eagle3", "model": "…", "num_speculative_tokens": 3}\''


@dataclass(frozen=True)
class Serve:
    """What a command line says, in so far as it matters here.

    Attributes:
        model: the target, None where it is not named.
        speculative: the speculative configuration, None where there is none.
        options: the other options by name without dashes; a flag's value is "true".
        environment: `NAME=value` words before the command.
        findings: what is wrong with the command line itself.
        unreadable: whether there is a speculative configuration that is no JSON object.
    """

    model: str | None = None
    speculative: dict[str, Any] | None = None
    options: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    unreadable: bool = False

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


def parse(words: Iterable[str], declared: Declared | None = None) -> Serve:
    """Reads the options that follow `vllm serve`; `declared` are those of the installed vLLM."""
    expanded, problems = config_file.expand(list(words), declared)
    found = split(expanded, declared)
    plain: dict[str, str] = {}
    dotted: dict[str, Any] = {}
    findings = [*problems, *found.findings]
    for name, value in found.options:
        head, _, tail = name.partition(".")
        if head == SPECULATIVE and tail:
            _nest(dotted, tail.replace("-", "_").split("."), value)
        else:
            plain[name] = value
    given = plain.pop(SPECULATIVE, None)
    if given in ("", "None"):  # `optional_type` of vLLM's parser
        given = None
    speculative = _speculative(given, dotted, findings)
    unreadable = given is not None and not dotted and _object(given) is None
    for option, key in SINGLE.items():
        if option in plain:
            value = plain.pop(option)
            speculative = {**(speculative or {}), key: _typed(value)}
    removed = [f"--{n}" for n in REMOVED if n in plain and not _declares(declared, n)]
    if removed:
        findings.append(
            error(
                "argument",
                f"vLLM's parser refuses {' and '.join(removed)}: options of its V0 engine",
                f"use {HOW}",
            )
        )
    named = plain.pop("model", None)
    model = found.rest[0] if found.rest else named
    return Serve(model, speculative, plain, {}, tuple(findings), unreadable)


def _declares(declared: Declared | None, name: str) -> bool:
    return declared is not None and declared.option(f"--{name}") is not None


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
                f"--speculative-config is not a JSON object: {_why(given)}: {_shortened(given)}",
                f"quote it for the shell: {HOW}",
            )
        )
    return parsed or {}


def _why(text: str) -> str:
    try:
        found = json.loads(text)
    except ValueError as problem:
        single = "'" in text and '"' not in text
        return f"{problem}{' (JSON has double quotes)' if single else ''}"
    except RecursionError:
        return "nested too deep"
    return f"a {type(found).__name__}"


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}…"


def command_line(words: Sequence[str], declared: Declared | None = None) -> Serve:
    """Reads a whole command: `[NAME=value …] vllm serve MODEL …`, or the API server's module.

    Raises:
        UsageError: it is neither.
    """
    environment, options, serves = _shared_out(words)
    found = parse(options, declared)
    problems = _model_option(options, found.model, declared) if serves else ()
    return replace(found, environment=environment, findings=(*found.findings, *problems))


def parsed(words: Sequence[str]) -> list[str]:
    """What vLLM's parser gets: `serve` and what follows, or what follows the module; raises
    UsageError as `command_line`."""
    _, options, serves = _shared_out(words)
    return ["serve", *options] if serves else options


def _shared_out(words: Sequence[str]) -> tuple[dict[str, str], list[str], bool]:
    """The environment in front of a command, the words behind it, and whether it is `serve`."""
    rest = list(words)
    environment: dict[str, str] = {}
    while rest and (rest[0] == "env" or re.match(r"[A-Za-z_]\w*=", rest[0])):
        name, equals, value = rest.pop(0).partition("=")
        if equals:
            environment[name] = value
    for number, word in enumerate(rest):
        serves = word == "serve" and number and rest[number - 1].split("/")[-1] == "vllm"
        if serves or word.startswith("vllm.entrypoints."):
            return environment, rest[number + 1 :], bool(serves)
    raise UsageError(
        "this is not a vllm serve command",
        where=shlex.join(words)[:200],
        next="what follows -- is your own command: vllm serve MODEL --speculative-config '{…}'",
    )


def _model_option(
    words: Sequence[str], model: str | None, declared: Declared | None
) -> Iterator[Finding]:
    """`--model` beside `vllm serve`: refused to 0.11.0, later moved before the other words."""
    given = next((w for w in words if re.match(r"--model(=|$)", w)), None)
    if given is None or declared is None:
        return
    name = given.partition("=")[2] or words[min(words.index(given) + 1, len(words) - 1)]
    texts = [snippets.text(declared.sources, path) for path in config_file.PARSERS]
    if any("model_in_cli_args = any(" in text for text in texts):
        yield error("argument", "this vLLM's serve command refuses --model", f"vllm serve {name} …")
    elif model not in (None, name):
        yield error(
            "argument",
            f"the model is named twice, as {model} and by --model {name}: vLLM's parser refuses it",
            "name it once, right after `vllm serve`",
        )


def arguments(text: str, declared: Declared | None = None) -> Serve:
    """Reads the string of `--serve-args`.

    Raises:
        UsageError: its quotes do not match.
    """
    try:
        return parse(shlex.split(text), declared)
    except ValueError as problem:
        raise UsageError(f"--serve-args: {problem}", where=text[:200]) from None
