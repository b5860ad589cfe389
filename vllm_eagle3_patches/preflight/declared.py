"""The options that the installed vLLM's own source declares for `vllm serve`.

Read as text: the `add_argument` calls of `vllm/engine/arg_utils.py`, and of the module that has
`make_arg_parser` (`vllm/entrypoints/openai/cli_args.py` to 0.29, `…/launchers/cli_args.py` to
0.32, `…/common/cli_args.py` later) with the fields of its `…FrontendArgs` classes, each of which
is an option.  What an option takes follows from the annotation of the config field it stands
for, by the rules of `_compute_kwargs` in `arg_utils.py`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.annotations import Field, class_text, field_of
from vllm_eagle3_patches.sources import Sources

ENGINE = "vllm/engine/arg_utils.py"
FRONTENDS = (
    "vllm/entrypoints/openai/cli_args.py",
    "vllm/entrypoints/launchers/cli_args.py",
    "vllm/entrypoints/common/cli_args.py",
)
SERVE = "vllm/entrypoints/cli/serve.py"
CALL = re.compile(r"\badd_argument\(")
VARIABLE = re.compile(r"\b(\w+) = get_kwargs\((\w+)\)")
CHANGED = re.compile(r"""\b(\w+)\[["'](\w+)["']\]\[["'](type|choices|nargs|action)["']\]""")
CLASS = re.compile(r"^class (\w*Args)\b", re.MULTILINE)
OWN_FIELD = re.compile(r"^    ([a-z]\w*): ", re.MULTILINE)
PLUGINS = re.compile(
    r"^\[vllm\.(?:general|platform)_plugins\]\n((?:[^\[\n].*\n?|\n)*)", re.MULTILINE
)


class Takes(Enum):
    """How many words of the command line an option takes."""

    NOTHING = "nothing"
    ONE = "one"
    SOME = "one or more"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: with two dashes, as the module that reads the command line calls it.
        takes: how many words.
        field: the config field it sets, None where that is not known, or where the source
            changes what the field's annotation would give.
    """

    name: str
    takes: Takes = Takes.UNKNOWN
    field: Field | None = None


@dataclass(frozen=True)
class _Call:
    """One `add_argument` call: its option strings, and where its keywords come from."""

    names: tuple[str, ...]
    source: tuple[str, str] | None  # variable of `get_kwargs`, and field
    takes: Takes | None
    integer: bool = False  # `type=int`


@dataclass(frozen=True)
class Declared:
    """The options of one installed vLLM, by option string; empty where its source is unreadable."""

    sources: Sources
    _known: dict[str, Option] = field(default_factory=dict)

    @cached_property
    def _calls(self) -> Mapping[str, _Call]:
        found: dict[str, _Call] = {}
        for path in (ENGINE, self.frontend, SERVE):
            for call in _calls(snippets.text(self.sources, path)) if path else ():
                found.update(dict.fromkeys(call.names, call))
        for name, source in self._frontend_fields.items():
            found.setdefault(name, _Call((name,), source, None))
        return found

    @cached_property
    def frontend(self) -> str | None:
        """The file with `make_arg_parser`."""
        return next(
            (p for p in FRONTENDS if "def make_arg_parser" in snippets.text(self.sources, p)), None
        )

    @cached_property
    def _frontend_fields(self) -> Mapping[str, tuple[str, str]]:
        text = snippets.text(self.sources, self.frontend) if self.frontend else ""
        return {
            f"--{name.replace('_', '-')}": (owner, name)
            for owner in CLASS.findall(text)
            for name in OWN_FIELD.findall(class_text(text, owner))
        }

    @property
    def readable(self) -> bool:
        """Whether enough was found for what is missing to count as missing."""
        return self.frontend is not None and "--tensor-parallel-size" in self._calls

    @cached_property
    def has_plugins(self) -> bool:
        """Whether a plugin of vLLM is installed, which may add options of its own."""
        for path in self.sources.root.glob("*.dist-info/entry_points.txt"):
            try:
                text = path.read_text("utf-8")
            except (OSError, UnicodeDecodeError):
                continue
            for section in PLUGINS.findall(text):
                targets = re.findall(r"=\s*([\w.]+)", section)
                if any(target.split(".")[0] != "vllm" for target in targets):
                    return True
        return False

    @cached_property
    def names(self) -> frozenset[str]:
        """All option strings, without the `--no-…` forms."""
        return frozenset(self._calls) | {"--help", "-h"}

    def option(self, name: str) -> Option | None:
        """The option of this exact string."""
        if name in ("--help", "-h"):
            return Option("--help", Takes.NOTHING)
        if name not in self._known:
            call = self._calls.get(name)
            if call is not None:
                self._known[name] = self._option(call)
            elif name.startswith("--no-") and f"--{name[5:]}" in self._calls:
                positive = self.option(f"--{name[5:]}")
                if positive is not None and positive.takes in (Takes.NOTHING, Takes.UNKNOWN):
                    self._known[name] = Option(name, positive.takes)
        return self._known.get(name)

    def candidates(self, name: str) -> list[str]:
        """What an abbreviation may stand for, as argparse completes it; one is a match.

        Some of the `--no-…` forms are left out, so more may be possible, never fewer.
        """
        if name.startswith("--"):
            wanted = f"--{name[5:]}" if name.startswith("--no-") else name
            found = [n for n in self.names if n.startswith(wanted)]
            if name.startswith("--no-"):
                found = [f"--no-{n[2:]}" for n in found if self.option(f"--no-{n[2:]}")]
                found += [n for n in self.names if n.startswith(name)]
            return sorted(found)
        short = [n for n in self.names if n.startswith(name) and not n.startswith("--")]
        return sorted({*short, *(n for n in self.names if n == name[:2])})

    def _option(self, call: _Call) -> Option:
        name = next((n for n in call.names if n.startswith("--")), call.names[0])
        if call.integer:
            return Option(name, Takes.ONE, Field(name[2:], frozenset({"int"}), None))
        found = self._field(call.source) if call.source else None
        changed = self._changed.get(call.source, set()) if call.source else set()
        takes = Takes.UNKNOWN if found is None else _takes(found)
        if changed > {"type"} or (changed and takes is not Takes.ONE):
            takes = Takes.UNKNOWN
        return Option(name, call.takes or takes, None if changed else found)

    def _field(self, source: tuple[str, str]) -> Field | None:
        variable, name = source
        owner = self._variables.get(variable, variable)
        return field_of(self.sources, owner, name, self.frontend)

    @cached_property
    def _variables(self) -> Mapping[str, str]:
        return dict(VARIABLE.findall(snippets.text(self.sources, ENGINE)))

    @cached_property
    def _changed(self) -> Mapping[tuple[str, str], set[str]]:
        """Fields whose keywords the source changes by hand before it uses them, and which."""
        changed: dict[tuple[str, str], set[str]] = {}
        for variable, name, key in CHANGED.findall(snippets.text(self.sources, ENGINE)):
            changed.setdefault((variable, name), set()).add(key)
        front = snippets.text(self.sources, self.frontend) if self.frontend else ""
        for _, name, key in CHANGED.findall(front):
            for owner in CLASS.findall(front):
                changed.setdefault((owner, name), set()).add(key)
        return changed

    @cached_property
    def readable_numbers(self) -> str:
        """The text of the function that gives some fields a type for `32k`, by name."""
        return (
            snippets.function_text(self.sources, ENGINE, "_compute_kwargs")
            or snippets.function_text(self.sources, ENGINE, "get_kwargs")
            or ""
        )


def _takes(found: Field) -> Takes:
    if found.kinds == {"bool", "str", "None"}:
        return Takes.UNKNOWN  # an optional word
    if "bool" in found.kinds:
        return Takes.NOTHING
    if found.choices is None and found.kinds & {"list", "tuple", "set"}:
        return Takes.SOME
    return Takes.ONE


def _calls(text: str) -> Iterator[_Call]:
    for match in CALL.finditer(text):
        end = _closing(text, match.end() - 1)
        try:
            node = ast.parse(text[match.start() : end], mode="eval").body
        except SyntaxError:
            continue
        call = _call(node) if isinstance(node, ast.Call) else None
        if call is not None:
            yield call


def _closing(text: str, opening: int) -> int:
    """Behind the bracket that closes the one at `opening`; strings may hold brackets."""
    depth, quote, at = 0, "", opening
    while at < len(text):
        if quote:
            if text[at] == "\\":
                at += 1
            elif text.startswith(quote, at):
                at += len(quote) - 1
                quote = ""
        elif text[at] in "\"'":
            quote = text[at : at + 3] if text[at : at + 3] in ('"""', "'''") else text[at]
            at += len(quote) - 1
        elif text[at] == "#":
            at = text.find("\n", at) if "\n" in text[at:] else len(text)
        elif text[at] in "([{":
            depth += 1
        elif text[at] in ")]}":
            depth -= 1
            if not depth:
                return at + 1
        at += 1
    return len(text)


def _call(node: ast.Call) -> _Call | None:
    names = tuple(
        a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
    )
    if not names or not all(n.startswith("-") for n in names):
        return None
    source, takes = None, None
    plain = {k.arg: ast.unparse(k.value) for k in node.keywords if k.arg}
    spread = [k.value for k in node.keywords if k.arg is None]
    for value in spread:
        if isinstance(value, ast.Dict):  # `**{**kwargs["x"], "default": None}`
            pairs = list(zip(value.keys, value.values, strict=True))
            plain.update({str(k.value): "" for k, _ in pairs if isinstance(k, ast.Constant)})
            value = next((v for k, v in pairs if k is None), value)
        if isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
            source = (ast.unparse(value.value), str(value.slice.value))
    action = plain.get("action", "")
    if "BooleanOptional" in action or "store_true" in action or "store_false" in action:
        takes = Takes.NOTHING
    elif action or "nargs" in plain or "type" in plain or "choices" in plain:
        takes = Takes.UNKNOWN if action or "nargs" in plain else Takes.ONE
        source = None
    elif source is None and spread:
        takes = Takes.UNKNOWN
    elif source is None:
        takes = Takes.ONE
    integer = takes is Takes.ONE and plain.get("type") == "int"
    return _Call(names, source, takes, integer)
