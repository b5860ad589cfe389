"""One line of a log as people have it -> records: which process, which level, which text."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

ALIKE = 1000  # records of one flattened line that differ in numbers alone; more tell nothing
LONGEST = 8192  # characters of a record that are looked at

_NUMBER = re.compile(r"\d+")
# Colours: real, as text, or with the escape lost; and a carriage return as text.
_COLOUR = re.compile(
    r"(?:\x1b|\^\[|\\x1b|\\033|\\u001b|[\ufffd\u241b])\[[0-9;?]*[A-Za-z]"
    r"|\[\d{1,3}(?:;\d{1,3}){0,4}m|\^M$|\x1b_bk;t=\d+\x07"
)
_NAME = r"[A-Za-z_][\w.:-]{0,60}(?: (?:rank=\d+|[PT]P\d+(?:_[PT]P\d+)?))?"
_PROCESS = re.compile(
    rf"(?:\(?(?P<name>{_NAME}) |\()pid=(?P<pid>\d+)(?:, ip=(?P<ip>[^)\s]{{1,60}}))?\)"
)
_LEVEL = re.compile(
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL)\s{1,8}"
    r"(?:(?P<time>\d\d-\d\d \d\d:\d\d:\d\d)(?:[.,]\d+)?\s+)?"
    r"(?:\[(?P<place>[^\]\s:]{1,120}:\d+)\]|(?P<old>[\w./<>-]{1,120}\.py:\d+)\]) ?"
)
# A logging configuration of the user's own.
_CUSTOM = re.compile(
    r"\d{4}-(?P<time>\d\d-\d\d \d\d:\d\d:\d\d),\d+ - (?P<place>[\w.]+) - "
    r"(?P<level>DEBUG|INFO|WARNING|ERROR|CRITICAL) - "
)
# Where a record begins, for pastes that lost their line ends.
_ONE_PROCESS, _ONE_LEVEL, _ONE_CUSTOM = (
    re.sub(r"\(\?P<\w+>", "(?:", p.pattern) for p in (_PROCESS, _LEVEL, _CUSTOM)
)
_RECORD = re.compile(
    rf"(?:{_ONE_PROCESS}\s{{1,3}})*(?:{_ONE_LEVEL}|{_ONE_CUSTOM})"
    rf"|{_ONE_PROCESS}(?:\s{{0,3}}{_ONE_PROCESS})*"
)
# What other programs put before a line that has no prefix of vLLM's.
_OUTER = re.compile(
    r"(?:"
    r"[\w.-]{1,80}\s*\|\s?"  # docker compose
    r"|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\s"  # Kubernetes, docker
    r"|std(?:out|err) [FP] "  # a container runtime's own file
    r"|\[\d{4}-\d\d-\d\d[T ][^\]]{8,30}\]\s?"  # Buildkite
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \S{1,80} [\w./@-]{1,80}(?:\[\d+\])?: ?"  # journald
    r"|\[pod/[^\]]{1,200}\]\s?"  # kubectl logs --prefix
    r"|(?:\[?(?:INFO|WARN|ERROR|DEBUG)\s*\]?\s+)?PyProcess\s.{1,80}?-std(?:out|err):\s?"  # DJL
    r"|>\s"  # a quotation
    r")+"
)
_VLLM_NAME = re.compile(r"A[Pp][Ii]|DP|\w*Engine|\w*Worker|Ray|Serve|Spawn|MainProcess")
_REPEATED = re.compile(r"\s*\[repeated \d+x across cluster\].*$")  # Ray
_RANK = re.compile(r"\[(?P<rank>(?:rank|default)\d+)\]:\s?")


class Line(NamedTuple):
    """One record's line.

    Attributes:
        number: of the line in the log, from 1.
        process: the innermost process prefix's name, such as `Worker_TP0`; None without one.
        key: what tells this process from others of the same name.
        level: None where the line was not written by vLLM's logger.
        place: `file.py:123` of the logger's call.
        time: `MM-DD HH:MM:SS`.
    """

    number: int
    process: str | None
    key: str | None
    level: str | None
    place: str | None
    time: str | None
    text: str


def parse(number: int, raw: str) -> Iterator[Line]:
    """The records of one line: one, but in flattened pastes and structured logs."""
    raw = raw.rstrip("\r\n")
    if "\x1b" in raw or "0m" in raw or "^" in raw:  # a colour is always reset
        raw = _COLOUR.sub("", raw)
    if raw.endswith("}") and '"' in raw:
        structured = _structured(raw)
        if structured is not None:
            yield from _from_json(number, structured)
            return
    if raw.count("pid=") > 1 or raw.count(".py:") > 1 or raw.count(" - ERROR - ") > 1:
        likes: Counter[str] = Counter()
        for record in _records(raw):
            shape = _NUMBER.sub("", record[:200])
            likes[shape] += 1
            if likes[shape] <= ALIKE:
                yield _line(number, record)
    else:
        yield _line(number, raw)


def _records(raw: str) -> Iterator[str]:
    begin, bare_end = 0, -1
    first = True
    for match in _RECORD.finditer(raw):
        at = match.start()
        bare = match[0].endswith(")")
        after_prefix = begin <= bare_end <= at <= bare_end + 80
        if not bare and after_prefix:
            bare_end = -1  # the user's VLLM_LOGGING_PREFIX stands between process and level
            continue
        if at > begin and not (first and _is_head(raw[:at])):
            yield raw[begin:at].rstrip()
            begin = at
        first = False
        bare_end = match.end() if bare else -1
    yield raw[begin:]


def _is_head(text: str) -> bool:
    return len(text) < 200 and 'File "' not in text and "Traceback" not in text


def _line(number: int, raw: str) -> Line:
    raw = raw[:LONGEST]
    if "[repeated " in raw:
        raw = _REPEATED.sub("", raw)
    match = _LEVEL.search(raw, 0, 600) or _CUSTOM.search(raw, 0, 600)
    if match is not None:
        process, key = _process(raw[: match.start()])
        found = match.groupdict()
        place = found["place"] or found.get("old")
        text = raw[match.end() :]
        return Line(number, process, key, found["level"], place, found["time"], text)
    outer = _OUTER.match(raw)
    text = raw[outer.end() :] if outer else raw
    process = key = None
    prefix = _prefix(text) if "pid=" in text else None
    while prefix is not None:
        process, key = _process(prefix[0])
        text = text[prefix.end() :].removeprefix(" ")
        prefix = _PROCESS.match(text)
    rank = _RANK.match(text)
    if rank is not None:
        process, key = process or rank["rank"], key or rank["rank"]
        text = text[rank.end() :]
    return Line(number, process, key, None, None, None, text)


def _prefix(text: str) -> re.Match[str] | None:
    """The process prefix a raw line begins with, also behind an outer prefix nobody foresaw."""
    match = _PROCESS.match(text)
    if match is None:
        match = _PROCESS.search(text, 0, 160)
        if match is not None and not _VLLM_NAME.match(match["name"] or ""):
            return None
    return match


def _process(head: str) -> tuple[str | None, str | None]:
    if "pid=" not in head:
        rank = _RANK.search(head)
        return (rank["rank"], rank["rank"]) if rank else (None, None)
    prefixes = list(_PROCESS.finditer(head))
    if not prefixes:
        return None, None
    innermost = prefixes[-1]
    return innermost["name"] or f"pid {innermost['pid']}", innermost[0]


def _structured(raw: str) -> dict[str, object] | None:
    at = raw.find("{")
    if at < 0 or ('"message"' not in raw and '"log"' not in raw):
        return None
    if at and not _OUTER.fullmatch(raw[:at]):
        return None
    try:
        found = json.loads(raw[at:])
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _from_json(number: int, record: dict[str, object]) -> Iterator[Line]:
    """docker's json-file and collectors like it, and vLLM's own JSON format (0.32)."""
    level, name, pid = (record.get(key) for key in ("levelname", "processName", "process"))
    if level is None:
        text = record.get("log", record.get("message"))
        for part in text.splitlines() if isinstance(text, str) else ():
            yield from parse(number, part)
        return
    process = str(name) if name else None
    time = str(record.get("asctime") or "")[5:19] or None
    for key in ("message", "exc_info"):
        text = record.get(key)
        for part in text.splitlines() if isinstance(text, str) else ():
            yield Line(
                number,
                process,
                f"{process} {pid}",
                str(level),
                str(record.get("name")),
                time,
                part[:LONGEST],
            )
