"""The file of `--config`, whose settings vLLM puts before the words of the command line.

Source: `FlexibleArgumentParser._pull_args_from_config` and `load_config_file`.  YAML is read with
the PyYAML that LibCST requires; without it a warning says that the file was not looked at.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.declared import Declared
from vllm_eagle3_patches.preflight.findings import Finding, error, warning

CLASS = "argument"
WORD = "--config"
PARSERS = ("vllm/utils/argparse_utils.py", "vllm/utils/__init__.py")
READERS = ("load_config_file", "_load_config_file")
MAX_FILE = 1 << 20


class _Unusable(Exception):
    """The file stops vLLM; the message says why."""


def expand(words: Sequence[str], declared: Declared | None) -> tuple[list[str], list[Finding]]:
    """The words with the file's settings first, as vLLM orders them: what is typed wins."""
    rest = list(words)
    attached = [word for word in rest if word.startswith(f"{WORD}=")]
    if attached and WORD not in rest:
        return rest, [
            warning(
                CLASS,
                f"{attached[0]} is not read: vLLM looks for the word {WORD} by itself",
                f"{WORD} {attached[0].partition('=')[2]}",
            )
        ]
    if WORD not in rest:
        return rest, []
    index = rest.index(WORD)
    try:
        if index + 1 == len(rest):
            raise _Unusable(f"{WORD} names no file")
        if rest.count(WORD) > 1:
            raise _Unusable(f"{WORD} is given {rest.count(WORD)} times")
        settings = _load(rest[index + 1])
    except _Unusable as problem:
        fix = f"{WORD} FILE.yaml, a YAML file of option names and values"
        return [*rest[:index], *rest[index + 2 :]], [error(CLASS, str(problem), fix)]
    del rest[index : index + 2]
    if settings is None:
        detail = f"{WORD} was not looked at: Python has no module yaml here"
        return rest, [warning(CLASS, detail, "pip install pyyaml, or give its settings as options")]
    head = 1 if rest and not rest[0].startswith("-") else 0  # the model stays in front
    return [*rest[:head], *_words(settings, declared), *rest[head:]], []


def _load(name: str) -> dict[str, Any] | None:
    if name.rpartition(".")[2] not in ("yaml", "yml"):
        raise _Unusable(f"{WORD} wants a .yaml or .yml file, not {name}")
    yaml = _yaml()
    try:
        if Path(name).exists() and not Path(name).is_file():  # a pipe would be waited for
            raise _Unusable(f"{WORD} {name} is not a file")
        with Path(name).open("rb") as file:
            text = file.read(MAX_FILE)
    except OSError as problem:
        raise _Unusable(f"{WORD} {name} cannot be read: {problem.strerror}") from None
    if yaml is None:
        return None
    try:
        settings = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as problem:
        first = " ".join(str(problem).split())[:200]
        raise _Unusable(f"{WORD} {name} is no YAML: {first}") from None
    if not isinstance(settings, dict):
        raise _Unusable(f"{WORD} {name} holds no settings (option: value)")
    return {str(key): value for key, value in settings.items()}


def _yaml() -> Any:
    for name in ("yaml", "yaml_ft"):
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _words(settings: dict[str, Any], declared: Declared | None) -> Iterator[str]:
    """As this version writes each kind of value; one that has no case is written by `str`."""
    reader = _reader(declared)
    for key, value in settings.items():
        if isinstance(value, bool):
            negative = f"--no-{key}"
            if value:
                yield f"--{key}"
            elif "--no-" in reader and declared is not None and declared.option(negative):
                yield negative
        elif isinstance(value, list) and "isinstance(value, list)" in reader:
            if value:
                yield f"--{key}"
                yield from map(str, value)
        elif isinstance(value, dict) and "isinstance(value, dict)" in reader:
            yield from (f"--{key}", json.dumps(value, default=str))
        else:
            yield from (f"--{key}", str(value))


def _reader(declared: Declared | None) -> str:
    if declared is None:
        return "isinstance(value, list) isinstance(value, dict)"
    for path in PARSERS:
        for name in READERS:
            text = snippets.function_text(declared.sources, path, name)
            if text is not None:
                return text
    return ""
