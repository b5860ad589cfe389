"""What happened to the server, gathered line by line: one start of it, and the starts before."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from vllm_eagle3_patches.explain.facts import Facts, is_banner
from vllm_eagle3_patches.explain.lines import Line
from vllm_eagle3_patches.explain.signatures import (
    CONSEQUENCE,
    ROOT,
    WRAPPER,
    Fault,
    Frame,
    Signature,
    lookup,
)
from vllm_eagle3_patches.explain.tracebacks import Assembler, Raised

KEPT_PROCESSES = 512
KEPT_EVENTS = 200
KEPT_STARTS = 8
PATIENCE = 400  # lines of others after which a process is taken to have said all

_NUMBER = re.compile(r"\d+")
_DEPTHS = (
    (re.compile(r"\w*Worker|rank\d|default\d"), 3),
    (re.compile(r"\w*Engine"), 2),
)
_PLACE_DEPTHS = (
    (re.compile(r"/worker/|worker_base\.py|gpu_model_runner\.py|gpu_worker\.py"), 3),
    (re.compile(r"/v1/engine/core\.py|/engine/llm_engine\.py"), 2),
)


@dataclass
class Event:
    """A fault with its place in the table; `count` of the same in all processes."""

    fault: Fault
    line: Line
    signature: Signature | None
    values: Mapping[str, str]
    depth: int
    count: int = 1

    @property
    def rank(self) -> tuple[int, bool, int, bool, int]:
        """The smallest is the cause: a root, known, of the innermost process, raised, earliest."""
        strength = self.signature.strength if self.signature else ROOT
        known = self.signature is not None
        order = (ROOT, CONSEQUENCE, "cut", WRAPPER)
        strength = "cut" if self.fault.cut and not known else strength
        plain = self.fault.exception is None
        return (order.index(strength), not known, -self.depth, plain, self.line.number)

    @property
    def is_wrapper(self) -> bool:
        return self.signature is not None and self.signature.strength == WRAPPER


@dataclass
class Start:
    """One start of the server.

    Attributes:
        fatal_at: the number of the first line that says that the server is dead.
    """

    facts: Facts = field(default_factory=Facts)
    events: dict[object, Event] = field(default_factory=dict)
    fatal_at: int = 0
    banner_key: str | None = None
    banner_seen: bool = False

    def room(self, signature: Signature | None) -> int:
        """How many events are kept; known roots find room when the others have filled it."""
        root = signature is not None and signature.strength == ROOT
        return 2 * KEPT_EVENTS if root else KEPT_EVENTS

    @property
    def cause(self) -> Event | None:
        """The event to blame when the start failed; a wrapper where the log has nothing else."""
        return min(self.events.values(), key=lambda event: event.rank, default=None)

    @property
    def failed(self) -> bool:
        """Whether the server is dead, as far as the log shows.

        Without a line that says so, an error decides: a known root before the server is up, any
        other only when nothing that shows life comes after it.
        """
        if self.facts.stopped_at and not 0 < self.fatal_at < self.facts.stopped_at:
            return False  # what comes after that belongs to stopping
        if self.fatal_at:
            return True
        blamed = [event for event in self.events.values() if not event.is_wrapper]
        if not self.facts.up:
            return any(
                (event.signature is not None and event.signature.strength == ROOT)
                or event.line.number > self.facts.alive_at
                for event in blamed
            )
        return any(e.depth > 1 and e.line.number > self.facts.alive_at for e in blamed)


class Story:
    """Feed it records in the log's order, `flush` at a pause or the end, then read `starts`.

    `effect` says what the lines did since it was last set to False: nothing, one more time a known
    event (which it then is), or more than that; `told` whether they changed what is known of the
    server itself.
    """

    def __init__(self) -> None:
        self.starts = [Start()]  # the last ones; `count` of all
        self.count = 1
        self.recognised = False  # something in the log was vLLM's
        self.effect: Event | bool = False
        self.told = False
        self._assemblers: OrderedDict[str | None, Assembler] = OrderedDict()
        self._busy: dict[str | None, int] = {}  # process -> its last line's number, oldest first

    @property
    def now(self) -> Start:
        return self.starts[-1]

    @property
    def busy(self) -> bool:
        """Whether the next lines may belong to a traceback or message."""
        return bool(self._busy)

    def feed(self, line: Line) -> None:
        if not self.recognised and (line.process is not None or line.level is not None):
            self.recognised = self.effect = True
        if self._busy:
            self._settle(line.number)
        quiet = line.level in ("INFO", "DEBUG", "WARNING")
        if line.level != "ERROR":
            if is_banner(line):
                self._banner(line)
                self.effect = True
            if self.now.facts.note(line):
                self.told = True
        assembler = self._assemblers.get(line.key)
        if quiet:
            if assembler is not None and assembler.busy:
                self._take(assembler.flush())
                self._busy.pop(line.key, None)
                self.effect = True
            if line.level == "WARNING" or "[shutdown]" in line.text:
                self._plain(line, quiet=True)
            return
        if assembler is None:
            assembler = self._assembler(line.key)
        inside = assembler.open is not None
        self._take(assembler.feed(line))
        self._busy.pop(line.key, None)
        if assembler.busy:
            self._busy[line.key] = line.number
            self.effect = True
        elif not inside:
            self._plain(line)

    def flush(self) -> None:
        """Takes what is still open as it is: at the end, or when the log falls silent."""
        for key in list(self._busy):
            self._take(self._assemblers[key].flush())
        self._busy.clear()

    def _assembler(self, key: str | None) -> Assembler:
        while len(self._assemblers) >= KEPT_PROCESSES:
            oldest, assembler = self._assemblers.popitem(last=False)
            self._take(assembler.flush())
            self._busy.pop(oldest, None)
        return self._assemblers.setdefault(key, Assembler())

    def _settle(self, number: int) -> None:
        while self._busy:
            key = next(iter(self._busy))
            if number - self._busy[key] <= PATIENCE:
                return
            del self._busy[key]
            self._take(self._assemblers[key].flush())

    def _banner(self, line: Line) -> None:
        now = self.now
        if now.banner_seen and (line.key is None or line.key != now.banner_key):
            self.flush()
            if now.facts.up or now.failed:
                del self.starts[: -(KEPT_STARTS - 1)]
                self.starts.append(Start())
                self.count += 1
        self.recognised = self.now.banner_seen = True
        self.now.banner_key = line.key

    def _take(self, raised: Iterable[Raised]) -> None:
        for one in raised:
            if one.line.level in (None, "ERROR", "CRITICAL"):
                self._add(one.line, one.fault)

    def _plain(self, line: Line, quiet: bool = False) -> None:
        """A line outside tracebacks that tells of an error by itself; a quiet one of no root."""
        fault = Fault(None, line.text)
        found = lookup(fault, self.now.facts.arguments)
        if found is not None and not (quiet and found[0].strength == ROOT):
            self._add(line, fault, found)

    def _add(
        self,
        line: Line,
        fault: Fault,
        found: tuple[Signature, Mapping[str, str]] | None = None,
    ) -> None:
        start = self.now
        found = found or lookup(fault, start.facts.arguments)
        signature, values = found or (None, {})
        self.recognised = True
        if signature is not None and signature.fatal and not start.fatal_at:
            start.fatal_at = line.number
            self.effect = True
        quoted = signature is not None and values.get(signature.cause)
        if quoted:
            self._add(line, Fault(None, quoted))
        depth = _depth(line, fault.frames)
        alike = _NUMBER.sub("#", fault.message[:300])
        kind = signature.id if signature else fault.exception
        key = (kind, depth, fault.cut, alike)
        event = Event(fault, line, signature, values, depth)
        known = start.events.get(key)
        if known is not None:
            known.count += 1
            self.effect = known if self.effect is False else True
            if line.number < known.line.number:  # its message was open until now
                start.events[key] = replace(event, count=known.count)
                self.effect = True
        elif len(start.events) < start.room(signature):
            start.events[key] = event
            self.effect = True


def _depth(line: Line, frames: Iterable[Frame]) -> int:
    """How deep inside the process stands: API server 1, engine core 2, worker 3."""
    name = line.process
    if name is not None:
        return next((depth for pattern, depth in _DEPTHS if pattern.match(name)), 1)
    paths = [f"/{frame.path}" for frame in frames]
    for pattern, depth in _PLACE_DEPTHS:
        if any(pattern.search(path) for path in paths):
            return depth
    return 1
