"""The bytes of a log -> the few lines that can matter, at the speed of one search."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import BinaryIO

from vllm_eagle3_patches.explain.decoding import Decoder
from vllm_eagle3_patches.explain.lines import parse
from vllm_eagle3_patches.explain.story import Event, Start, Story

BLOCK = 1 << 20
LONGEST_LINE = 1 << 20  # a longer one is cut in pieces

_HINTS = (
    # of errors
    rb"Traceback|File \\?\"|[Ee]rror|ERROR|CRITICAL|Exception|above exception|Assertion|assert "
    rb"|unexpectedly|Failed core|Segfault|Segmentation|NCCL|died with|out of memory"
    rb"|[Kk]illed|OOMK|oom_kill|SIGKILL|9/KILL|code 137"
    rb"|object has no attribute|trigger received"
    # of progress
    rb"|version |\(v\d|  model  |non-default|Resolved arch|auxiliary layers|Starting |Loading d"
    rb"|% Completed|Capturing CUDA|Model loading|Dynamo byte|Compiling a"
    rb"|KV cache (?:memory|size)|Graph capturing|init engine|startup complete|shutdown complete"
    rb"|Uvicorn running|SpecDecoding|Avg prompt"
)
_STARTING = re.compile(_HINTS + rb"|HTTP/1\.\d\" 200")
_SERVING = re.compile(_HINTS)  # once it serves, requests say nothing new


_DIGITS = b"0123456789"
_NUMBER = re.compile(rb"\d+")
STREAK = 8
RUNNING = 80  # bytes of the lines that are worth a pattern of their own
DULL = 20  # lines that differ in numbers alone, after which the effect of more is taken as known
FLOOD = 1000  # the same for lines of tracebacks and exceptions, within `WINDOW` lines
WINDOW = 50_000
SHAPES = 4096


@dataclass
class Like:
    """Lines of one start that differ in numbers alone.

    Attributes:
        since: the line from which `times` are counted, in a flood the last one.
        times: those that had an effect on tracebacks or events.
        dull: the last ones in a row that told nothing, or one more time of `event`.
        told: the last ones in a row that told how far the server is, and nothing else.
    """

    start: Start
    since: int
    times: int = 0
    dull: int = 0
    told: int = 0
    event: Event | None = None

    def floods(self, line: int) -> bool:
        """Whether so many came so densely that more of them say nothing new."""
        if line - self.since > WINDOW:
            self.since, self.times = line, 0
        if self.times < FLOOD:
            return False
        self.since = line  # and as long as they go on
        return True


class Scanner:
    """Reads a log in pieces of any size; `story` knows what it has read so far."""

    def __init__(self) -> None:
        self.story = Story()
        self.lines = 0
        self._rest = b""
        self._decoder = Decoder()
        self._likes: dict[bytes, Like] = {}
        self._last: Like | None = None
        self._streak = 0  # how many lines were like the last one, without a break
        self._held: tuple[Like, bytes, int] | None = None
        self.damaged: str | None = None  # why the log could not be read to its end

    def feed(self, data: bytes) -> None:
        for piece in self._decoder.feed(data):
            self._feed(piece)

    def again(self) -> None:
        """What comes next is the beginning of a file, which goes on with the same log."""
        for piece in self._decoder.finish():
            self._feed(piece)
        self._end()
        self.damaged = self.damaged or self._decoder.damaged
        self._decoder = Decoder()

    def _feed(self, data: bytes) -> None:
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        if not end and len(data) > LONGEST_LINE:
            end = len(data)
        if end:
            self._scan(data, end)
        self._rest = data[end:]

    def finish(self) -> None:
        """No more will come."""
        self.again()
        self.story.flush()

    def _end(self) -> None:
        if self._rest:
            self._scan(self._rest, len(self._rest))
            self._rest = b""

    def read(self, stream: BinaryIO) -> None:
        while block := stream.read(BLOCK):
            self.feed(block)
        self.finish()

    def _scan(self, data: bytes, end: int) -> None:
        story = self.story
        position = counted = 0
        while position < end:
            begin = position
            if not story.busy:
                hints = _SERVING if story.now.facts.up else _STARTING
                hint = hints.search(data, position, end)
                if hint is None:
                    break
                begin = data.rfind(b"\n", position, hint.start()) + 1 or position
            stop = data.find(b"\n", begin, end)
            if stop < 0:
                stop = end
            self.lines += data.count(b"\n", counted, begin)
            counted = begin
            raw = data[begin:stop]
            position = stop + 1
            if self._once(raw) and position < end:
                position = self._run(data, raw, position, end)
        self.lines += data.count(b"\n", counted, end)
        self._release()

    def _run(self, data: bytes, raw: bytes, position: int, end: int) -> int:
        """Behind the lines at `position` that differ from `raw` in numbers alone."""
        if self._streak < STREAK or len(raw) > RUNNING:
            return position
        pattern = _NUMBER.sub(rb"\\d+", re.escape(raw))
        run = re.compile(rb"(?:%s\n)+" % pattern).match(data, position, end)
        if run is None:
            return position
        event = self._likes[raw.translate(None, _DIGITS)].event
        if event is not None and not self.story.busy:
            event.count += data.count(b"\n", position, run.end())
        return run.end()

    def _once(self, raw: bytes) -> bool:
        """A line, unless it is the like of many before it: a flood costs no more than its bytes.

        Returns whether it was passed over, as all that are like it and follow at once may be.
        """
        story = self.story
        shape = raw.translate(None, _DIGITS)
        like = self._likes.get(shape)
        if like is None or like.start is not story.now:
            if len(self._likes) >= SHAPES:
                self._likes.clear()
            like = self._likes[shape] = Like(story.now, self.lines)
        self._streak = self._streak + 1 if like is self._last else 0
        self._last = like
        if self._held is not None and self._held[0] is not like:
            self._release()
        if not story.busy and like.dull >= DULL:
            if like.event is not None:
                like.event.count += 1
            return True
        if like.floods(self.lines):
            return True
        if not story.busy and like.told >= DULL and b"SpecDecoding" not in raw:
            self._held = (like, raw, self.lines + 1)
            return False
        self._look(like, raw, self.lines + 1)
        return False

    def _look(self, like: Like, raw: bytes, number: int) -> None:
        story, busy = self.story, self.story.busy
        story.effect = story.told = False
        self._line(raw, number)
        if busy or story.busy or story.effect is True:
            like.dull = like.told = 0
            like.times += 1
        elif story.told:
            like.dull, like.told = 0, like.told + 1
        else:
            like.dull, like.told, like.event = like.dull + 1, 0, story.effect or None

    def _release(self) -> None:
        """Looks at the last of several lines that tell how far the server is."""
        if self._held is not None:
            held, self._held = self._held, None
            self._look(*held)

    def _line(self, raw: bytes, number: int) -> None:
        raw = raw.strip(b"\0")  # the hole that a writer leaves in a log that was emptied under it
        parts = raw.rstrip(b"\r").split(b"\r")
        shapes = [part.translate(None, _DIGITS) for part in parts] if len(parts) > 1 else []
        for at, part in enumerate(parts):
            if at + 1 < len(shapes) and shapes[at] == shapes[at + 1]:
                continue  # a bar that was drawn over
            for line in parse(number, part.decode("utf-8", "replace")):
                self.story.feed(line)
