"""The lines of one process -> the exceptions raised in it, with their innermost frames."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from vllm_eagle3_patches.explain.lines import Line
from vllm_eagle3_patches.explain.signatures import Fault, Frame

KEPT_FRAMES = 40
LONGEST_MESSAGE = 4000
MESSAGE_LINES = 40

_HEADER = "Traceback (most recent call last)"
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")
_FRAME = re.compile(r'File "(?P<path>[^"]{1,400})", line (?P<line>\d+)(?:, in (?P<function>\S+))?')
_BREAK = re.compile(
    r'(?=File "[^"]{1,400}", line \d+)|(?=Traceback \(most recent)|(?=During handl)|'
    r"(?=The above exception was)"
)
_SUFFIX = (
    r"(?:Error|Exception|Exit|Interrupt|Unsupported|OutOfResources|Timeout|Expired|Empty|Failed"
    r"|Failure|NotFound|Died|Terminated|Cancelled|Iteration|IsEnabled)"
)
_DOTTED = r"(?:[A-Za-z_]\w{0,60}\.){0,8}"
_RAISED = re.compile(
    rf"(?P<name>{_DOTTED}(?:[A-Z_a-z]\w*)?{_SUFFIX}(?:\(\w+\))?)(?::\s?(?P<message>.*))?$"
)
_RAISED_INSIDE = re.compile(
    rf"(?:^|[\s|:>])(?P<name>{_DOTTED}(?:[A-Z]\w{{0,60}})?{_SUFFIX}(?:\(\w+\))?)"
    r"(?:: (?P<message>.*)|$)"
)
_ANY_NAME = re.compile(r"(?P<name>(?:[A-Za-z_]\w{0,60}\.){1,8}[A-Z]\w*)(?::\s?(?P<message>.*))?$")
_WORD = re.compile(rf"(?!Exception){_SUFFIX}")  # by itself it may be any program's
_NO_NAME = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "FATAL", "NOTE")
_LONG = re.compile(r"ValidationError|OSError")  # unlogged, their messages have several lines
_PYDANTIC = re.compile(
    r"^\s*(?P<kind>Value error|Assertion failed), (?P<message>.*?)(?:\s*\[type=\w+.*)?$",
    re.MULTILINE,
)
_PYDANTIC_END = re.compile(r"\s*\[type=\w+, input_value=.*", re.DOTALL)
_PACKAGES = re.compile(r".*/(?:site|dist)-packages/|.*/lib/python3[\d.]*/|^.*/(?=vllm/)")


@dataclass
class Raised:
    """An exception as the log shows it: `line` is the number of its own line."""

    line: Line
    fault: Fault
    message_lines: int = 1


@dataclass
class Assembler:
    """Puts the exceptions of one process together. Feed it lines in order, then `flush`."""

    frames: deque[Frame] = field(default_factory=lambda: deque(maxlen=KEPT_FRAMES))
    open: Line | None = None  # the line with which the present traceback began
    pending: Raised | None = None  # an exception whose message may go on
    ignored: bool = False

    @property
    def busy(self) -> bool:
        return self.open is not None or self.pending is not None

    def feed(self, line: Line) -> Iterator[Raised]:
        """The exceptions that are complete now."""
        text = line.text
        if text.count('File "') > 1 or (_HEADER in text and len(text) > 60):
            for piece in _BREAK.split(text):
                yield from self._feed(line, piece)
        else:
            yield from self._feed(line, text)

    def flush(self) -> Iterator[Raised]:
        """What is left at the end, also of a traceback without its last line."""
        if self.pending is not None:
            yield self._done(self.pending)
        if self.open is not None and self.frames:
            yield Raised(self.open, Fault(None, "", tuple(self.frames), cut=True))
        self._clear()

    def _clear(self) -> None:
        self.open = self.pending = None
        self.frames.clear()

    def _feed(self, line: Line, text: str) -> Iterator[Raised]:
        words = text.strip()
        header = _HEADER in text
        frame = None if header else _FRAME.search(text)
        link = words.startswith(_LINKS)
        if self.pending is not None:
            if not (header or frame or link) and self._goes_on(self.pending, line, text):
                return
            done, self.pending = self.pending, None
            yield self._done(done)
        if header or link:
            if header and self.open is not None and self.frames:
                yield from self.flush()
            self.frames.clear()
            self.open = line if header else None
        elif frame is not None:
            self._frame(line, text, frame)
        elif words:
            self._other(line, text, words)

    def _frame(self, line: Line, text: str, found: re.Match[str]) -> None:
        self.open = self.open or line
        path = _PACKAGES.sub("", found["path"], count=1)
        function = found["function"] or "?"
        rest = text[found.end() :].strip()
        raised = _RAISED_INSIDE.search(rest) if rest else None  # a flattened paste
        code = rest[: raised.start()].strip() if raised else rest
        self.frames.append(Frame(path, int(found["line"]), function, code))
        if raised is not None:
            self._raise(line, raised)

    def _other(self, line: Line, text: str, words: str) -> None:
        raised = self._raised(text, words)
        if raised is not None:
            self._raise(line, raised)
        elif self.open is not None:
            last = self.frames[-1] if self.frames else None
            if last is not None and not last.code and not set(words) <= set("^~ "):
                self.frames[-1] = Frame(last.path, last.line, last.function, words[:300])
        elif words.startswith(("Value error, ", "Assertion failed, ")):
            self.pending = Raised(line, Fault("ValidationError", text))
        elif words.startswith("Exception ignored in"):
            self.ignored = True  # raised in a destructor: the traceback after it means nothing

    def _raised(self, text: str, words: str) -> re.Match[str] | None:
        raised = _RAISED.match(words)
        if raised is None and self.open is not None:
            if not text.startswith("  "):
                raised = _ANY_NAME.match(words)
            if raised is None and "rror: " in words:
                raised = _RAISED_INSIDE.search(words)
        if raised is None or raised["name"].upper() in _NO_NAME:
            return None
        name = raised["name"]
        if self.open is not None:
            return raised if name[0].isupper() or "." in name else None
        return None if _WORD.fullmatch(name) else raised

    def _raise(self, line: Line, raised: re.Match[str]) -> None:
        message = raised["message"] or ""
        if not self.ignored:
            self.pending = Raised(line, Fault(raised["name"], message, tuple(self.frames)))
        self.ignored = False
        self.open = None
        self.frames.clear()

    def _goes_on(self, pending: Raised, line: Line, text: str) -> bool:
        """Whether the line belongs to the message of the exception before it."""
        first = pending.line
        if (line.level, line.place, line.time) != (first.level, first.place, first.time):
            return False
        words = text.strip()
        if not words:
            return line.place is not None
        if line.place is None and not (
            text[0].isspace() or _LONG.search(pending.fault.exception or "")
        ):
            return False
        if pending.message_lines >= MESSAGE_LINES or _RAISED.match(words):
            return False
        fault = pending.fault
        if len(fault.message) < LONGEST_MESSAGE:
            message = f"{fault.message}\n{text}"[:LONGEST_MESSAGE]
            pending.fault = Fault(fault.exception, message, fault.frames)
        pending.message_lines += 1
        return True

    def _done(self, raised: Raised) -> Raised:
        """Takes pydantic's wrapping off."""
        fault = raised.fault
        name = fault.exception or ""
        if name.endswith("ValidationError"):
            inner = _PYDANTIC.search(fault.message)
            if inner is not None:
                kind = "ValueError" if inner["kind"] == "Value error" else "AssertionError"
                message = _PYDANTIC_END.sub("", fault.message[inner.start("message") :])
                raised.fault = Fault(kind, message.strip(), fault.frames)
        return raised
