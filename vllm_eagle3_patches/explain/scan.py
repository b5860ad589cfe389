"""The bytes of a log -> the few lines that can matter, at the speed of one search."""

from __future__ import annotations

import re
from typing import BinaryIO

from vllm_eagle3_patches.explain.decoding import Decoder
from vllm_eagle3_patches.explain.lines import parse
from vllm_eagle3_patches.explain.story import Story

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


class Scanner:
    """Reads a log in pieces of any size; `story` knows what it has read so far."""

    def __init__(self) -> None:
        self.story = Story()
        self.lines = 0
        self._rest = b""
        self._decoder = Decoder()
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
            self._line(data[begin:stop])
            position = stop + 1
        self.lines += data.count(b"\n", counted, end)

    def _line(self, raw: bytes) -> None:
        number = self.lines + 1
        raw = raw.strip(b"\0")  # the hole that a writer leaves in a log that was emptied under it
        for part in raw.rstrip(b"\r").split(b"\r"):
            for line in parse(number, part.decode("utf-8", "replace")):
                self.story.feed(line)
