"""The table of known error texts, `signatures.json`, and how an error is looked up in it."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

ROOT, CONSEQUENCE, WRAPPER = "root", "consequence", "wrapper"
INNERMOST = 6  # frames that `frames` and `code` may stand in
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class Frame(NamedTuple):
    """One frame of a traceback; `path` begins at the package's folder."""

    path: str
    line: int
    function: str
    code: str = ""


class Fault(NamedTuple):
    """What is looked up: an exception, or a plain line of text."""

    exception: str | None
    message: str
    frames: Sequence[Frame] = ()
    cut: bool = False  # a traceback that ends before its last line


@dataclass(frozen=True)
class Signature:
    """One row of the table, which has columns of the same names (`class` for `kind`).

    Attributes:
        kind: one of `vllm_eagle3_patches.classes.CLASSES`, or None for a wrapper.
        text: the message as vLLM prints it, `{name}` where it varies; `tail` may follow.
        where: what a `{name}` may be, as a regular expression.
        exception: the name of the exception, as a regular expression.
        code: stands in the source line of one of the innermost frames.
        frames: `path:function` of one of the frames; without frames it decides nothing
            unless `only_in`.
        cut: belongs to a traceback whose last line is missing.
        arguments: has to stand in the command line that the log shows.
        strength: a root cause, a consequence (chosen when there is no root), or a wrapper.
        fatal: the server does not survive it.
        cause: the `{name}` in which a wrapper quotes the real cause.
        subject: the `{name}` that says which model is meant (`any`: the whole log).
        if_drafter, if_target: the class when the subject is that one.
        since, until: the first and last vLLM whose source has the text; None is open.
        source: where the text comes from: files of vLLM, another program, or a report.
        in_source: how the text reads there, where that differs; None where it is no text.
        apply: `vllm-eagle3-patch apply` mends it.
    """

    id: str
    source: Sequence[str]
    kind: str | None = None
    text: str = ""
    tail: str = ""
    where: Mapping[str, str] = field(default_factory=dict)
    exception: str = ""
    code: str = ""
    frames: str = ""
    only_in: bool = False
    cut: bool = False
    arguments: str = ""
    strength: str = ROOT
    fatal: bool = False
    cause: str = ""
    subject: str = ""
    if_drafter: str = ""
    if_target: str = ""
    since: str | None = None
    until: str | None = None
    what: str = ""
    fix: str = ""
    apply: bool = False
    in_source: str | None = None

    @functools.cached_property
    def needle(self) -> str:
        """The longest part of the text that does not vary: looked for before anything else."""
        return max(_PLACEHOLDER.split(self.text)[::2], key=len)

    @functools.cached_property
    def _literals(self) -> Sequence[str]:
        return [part for part in _PLACEHOLDER.split(self.text)[::2] if part]

    def _may_stand_in(self, message: str) -> bool:
        """Whether all that does not vary is there in order: in one pass, before the pattern."""
        at = 0
        for part in self._literals:
            at = message.find(part, at)
            if at < 0:
                return False
            at += len(part)
        return True

    @functools.cached_property
    def pattern(self) -> re.Pattern[str]:
        tail = f"(?:.{{0,20}}?{self._expression(self.tail)})?" if self.tail else ""
        return re.compile(self._expression(self.text) + tail, re.DOTALL)

    @functools.cached_property
    def names(self) -> re.Pattern[str]:
        return re.compile(rf"(?:^|\.)(?:{self.exception})(?:\(\w+\))?$")

    @functools.cached_property
    def places(self) -> re.Pattern[str]:
        return re.compile(self.frames)

    def _expression(self, text: str) -> str:
        parts = _PLACEHOLDER.split(text)
        parts[::2] = map(re.escape, parts[::2])
        parts[1::2] = [f"(?P<{n}>{self.where.get(n, '.+?')})" for n in parts[1::2]]
        return "".join(parts)

    def match(self, fault: Fault, arguments: str) -> Mapping[str, str] | None:
        """The values of the placeholders, or None when the fault is another."""
        if self.cut != fault.cut:
            return None
        values: dict[str, str] = {}
        if self.text:
            if self.needle not in fault.message or not self._may_stand_in(fault.message):
                return None
            found = self.pattern.search(fault.message)
            if found is None:
                return None
            values = {name: value for name, value in found.groupdict().items() if value}
        if self.exception and not (fault.exception and self.names.search(fault.exception)):
            return None
        if self.code and not any(self.code in f.code for f in fault.frames[-INNERMOST:]):
            return None
        if self.frames and (fault.frames or self.only_in):
            frames = fault.frames[-1:] if self.cut and self.arguments else fault.frames
            if not any(self.places.search(f"{f.path}:{f.function}") for f in frames):
                return None
        if self.arguments and self.arguments not in arguments:
            return None
        return values


@dataclass(frozen=True)
class Edit:
    """Functions that one of our patches changes."""

    edit: str
    path: str
    functions: Sequence[str]


@functools.cache
def _data() -> Mapping[str, Sequence[dict[str, object]]]:
    text = Path(__file__).with_name("signatures.json").read_text("utf-8")
    data: Mapping[str, Sequence[dict[str, object]]] = json.loads(text)
    return data


@functools.cache
def table() -> tuple[Signature, ...]:
    rows = []
    for record in _data()["signatures"]:
        columns = {("kind" if name == "class" else name): v for name, v in record.items()}
        rows.append(Signature(**columns))  # type: ignore[arg-type]
    return tuple(rows)


@functools.cache
def edits() -> tuple[Edit, ...]:
    return tuple(Edit(**record) for record in _data()["edits"])  # type: ignore[arg-type]


def edits_on(frames: Sequence[Frame]) -> tuple[str, ...]:
    """The edits whose functions lie on a traceback, in the table's order."""

    def found() -> Iterator[str]:
        for edit in edits():
            if any(f.path == edit.path and f.function in edit.functions for f in frames):
                yield edit.edit

    return tuple(dict.fromkeys(found()))


@functools.cache
def _index() -> tuple[Mapping[str, Sequence[int]], Sequence[tuple[str, int]], Sequence[int]]:
    """The rows by one whole word of their text, those by a part of it, and those without text."""
    by_word: dict[str, list[int]] = {}
    by_part = []
    textless = []
    for number, signature in enumerate(table()):
        inner = signature.needle.split(" ")[1:-1]  # the outer ones may be parts of words
        if inner:
            by_word.setdefault(max(inner, key=len), []).append(number)
        elif signature.needle:
            by_part.append((signature.needle, number))
        else:
            textless.append(number)
    return by_word, by_part, textless


@functools.lru_cache(maxsize=1024)
def _by_name(exception: str) -> Sequence[int]:
    """The rows without text that an exception of this name may belong to."""
    rows, (*_, textless) = table(), _index()
    return [n for n in textless if not rows[n].exception or rows[n].names.search(exception)]


def lookup(fault: Fault, arguments: str = "") -> tuple[Signature, Mapping[str, str]] | None:
    """The first row that fits, with the values of its placeholders."""
    rows, message = table(), fault.message
    by_word, by_part, textless = _index()
    candidates = [number for part, number in by_part if part in message]
    for word in by_word.keys() & message.split():
        candidates += by_word[word]
    if fault.cut:
        candidates += textless
    elif fault.exception is not None:
        candidates += _by_name(fault.exception)
    for number in sorted(candidates):
        values = rows[number].match(fault, arguments)
        if values is not None:
            return rows[number], values
    return None
