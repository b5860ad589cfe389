"""What a log says of the server itself: version, models, how far it has come, acceptance."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from vllm_eagle3_patches.explain.lines import Line

KEPT_ARGUMENTS = 4000

_VERSION = re.compile(
    r"(?:vLLM (?:API )?server version |\u2588  version |LLM engine \(v)(?P<version>[\w.+-]*\w)"
)
_BANNER = re.compile(r"vLLM (?:API )?server version |\u2588  version ")
_SERVED = re.compile(r"(?:\u2588  model   |serving model |with config: model=')(?P<model>[^\s',]+)")
_MODEL = re.compile(r"'model(?:_tag)?': '(?P<model>[^']+)'")
_SPECULATIVE = re.compile(
    r"'speculative_config': \{(?P<config>[^{}]*)\}|SpeculativeConfig\((?P<old>[^)]*)\)"
)
_DRAFTER = re.compile(r"'model': '(?P<quoted>[^']+)'|model='(?P<keyword>[^']+)'")
_ARCHITECTURE = re.compile(r"Resolved architecture: (?P<name>\w+)")
_AUX = re.compile(r"Using (?:Eagle3 )?auxiliary layers from .*?: (?P<layers>[(\[][\d, ]*[)\]])")
_SHARDS = re.compile(r"(?:Loading|Multi-thread loading) [\w ]+?:\s+(?P<percent>\d+)% Completed")
_BAR = re.compile(r"Capturing CUDA graphs?[^:]{0,60}:\s+(?P<percent>\d+)%")
_ACCEPTED = re.compile(r"Accepted: (?P<accepted>\d+) tokens, Drafted: (?P<drafted>\d+) tokens")
_LENGTH = re.compile(r"Mean acceptance length: (?P<length>[\d.]+)")
_UP = re.compile(
    r"(?P<now>Application startup complete|Uvicorn running on)"
    r"|Avg prompt throughput: |SpecDecoding metrics: |HTTP/1\.\d\" 200"
)

LOADING_TARGET, LOADING_DRAFTER = "loading the target", "loading the drafter"
_STAGES = (
    ("Resolved architecture: ", "reading the models' configuration"),
    ("Starting to load model ", LOADING_TARGET),
    ("Loading drafter model...", LOADING_DRAFTER),
    ("Model loading took ", "profiling the memory"),
    ("Starting torch.compile", "compiling"),
    ("Dynamo bytecode transform time", "compiling"),
    ("Compiling a graph", "compiling"),
    ("Available KV cache memory", "allocating the KV cache"),
    ("KV cache size", "allocating the KV cache"),
    ("Graph capturing finished", "warming up"),
    ("init engine (profile", "starting the API server"),
    ("Starting vLLM ", "starting the API server"),
)  # fmt: skip


@dataclass
class Facts:
    """Of one start of the server; everything None or empty where the log does not say.

    Attributes:
        arguments: the command line as logged, shortened.
        architectures: as resolved, in order: the target's, then the drafter's if it is another.
        stage: what the server was doing last; `percent` of it, where it counts.
        began, latest, came_up: times of the log, `MM-DD HH:MM:SS`.
        stopped_at: the number of the line that says that it was told to stop, after it was up.
        alive_at: the number of the last line that shows progress or service.
        length: the mean acceptance length last reported.
    """

    version: str | None = None
    model: str | None = None
    drafter: str | None = None
    arguments: str = ""
    architectures: list[str] = field(default_factory=list)
    aux_layers: str | None = None
    stage: str | None = None
    percent: int | None = None
    began: str | None = None
    latest: str | None = None
    came_up: str | None = None
    up: bool = False
    stopped_at: int = 0
    alive_at: int = 0
    length: float | None = None
    accepted: int = 0
    drafted: int = 0

    @property
    def target_architecture(self) -> str | None:
        return self.architectures[0] if self.architectures else None

    @property
    def drafter_architecture(self) -> str | None:
        return self.architectures[1] if len(self.architectures) > 1 else None

    @property
    def acceptance(self) -> float | None:
        """Accepted of drafted tokens, over the whole log."""
        return self.accepted / self.drafted if self.drafted else None

    @property
    def took(self) -> timedelta | None:
        began, up = _time(self.began), _time(self.came_up)
        if began is None or up is None:
            return None
        return up - began if up >= began else up - began + timedelta(days=366)  # over New Year

    def note(self, line: Line) -> bool:
        """Takes from the line what it says, and tells whether it said anything."""
        told = False
        if line.time is not None and line.time != self.latest:
            self.latest = line.time
            self.began = self.began or line.time
            told = True
        text = line.text
        if _ANY.search(text) is None:
            return told
        before = (self.__dict__.copy(), len(self.architectures))
        for key, read in _READERS:
            if key in text:
                read(self, line)
        for key, stage in _STAGES:
            if key in text:
                self._stage(line, stage, None)
        return told or before != (self.__dict__, len(self.architectures))

    def _stage(self, line: Line, stage: str, percent: int | None) -> None:
        self.stage, self.percent, self.alive_at = stage, percent, line.number

    def _version(self, line: Line) -> None:
        found = _VERSION.search(line.text)
        if found is not None:
            self.version = self.version or found["version"]

    def _models(self, line: Line) -> None:
        text = line.text
        if "non-default args" in text:
            self.arguments = text[:KEPT_ARGUMENTS]
        speculative = _SPECULATIVE.search(text)
        if speculative is not None:
            drafter = _DRAFTER.search(speculative["config"] or speculative["old"])
            if drafter is not None:
                self.drafter = self.drafter or drafter["quoted"] or drafter["keyword"]
            text = text.replace(speculative[0], "")
        served = _SERVED.search(text) or _MODEL.search(text)
        if served is not None:
            self.model = self.model or served["model"]

    def _architecture(self, line: Line) -> None:
        found = _ARCHITECTURE.search(line.text)
        known = self.architectures
        if found is not None and found["name"] not in known and len(known) < 2:
            known.append(found["name"])

    def _aux(self, line: Line) -> None:
        found = _AUX.search(line.text)
        if found is not None:
            self.aux_layers = found["layers"]

    def _shards(self, line: Line) -> None:
        found = _SHARDS.search(line.text)
        if found is not None:
            of_drafter = self.stage == LOADING_DRAFTER
            stage = LOADING_DRAFTER if of_drafter else LOADING_TARGET
            self._stage(line, stage, int(found["percent"]))

    def _bar(self, line: Line) -> None:
        found = _BAR.search(line.text)
        if found is not None:
            self._stage(line, "capturing CUDA graphs", int(found["percent"]))

    def _metrics(self, line: Line) -> None:
        tokens, length = _ACCEPTED.search(line.text), _LENGTH.search(line.text)
        if tokens is not None:
            self.accepted += int(tokens["accepted"])
            self.drafted += int(tokens["drafted"])
        if length is not None:
            self.length = float(length["length"])

    def _serving(self, line: Line) -> None:
        found = _UP.search(line.text)
        if found is not None:
            if found["now"] and not self.up:
                self.came_up = self.latest
            self.up, self.stopped_at, self.alive_at = True, 0, line.number

    def _stopping(self, line: Line) -> None:
        if self.up:
            self.stopped_at = self.stopped_at or line.number


_READERS: tuple[tuple[str, Callable[[Facts, Line], None]], ...] = (
    ("version ", Facts._version),
    ("(v", Facts._version),
    ("non-default args", Facts._models),
    ("with config: ", Facts._models),
    ("serving model ", Facts._models),
    ("\u2588  model ", Facts._models),
    ("Resolved architecture", Facts._architecture),
    ("auxiliary layers", Facts._aux),
    ("% Completed", Facts._shards),
    ("Capturing CUDA", Facts._bar),
    ("SpecDecoding metrics", Facts._metrics),
    ("startup complete", Facts._serving),
    ("Uvicorn running", Facts._serving),
    ("throughput: ", Facts._serving),
    ("HTTP/1", Facts._serving),
    ("Application shutdown complete", Facts._stopping),
    ("trigger received signal", Facts._stopping),
)


_ANY = re.compile("|".join(re.escape(key) for key, _ in (*_READERS, *_STAGES)))


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.strptime(f"2024-{text}", "%Y-%m-%d %H:%M:%S") if text else None
    except ValueError:
        return None


def is_banner(line: Line) -> bool:
    """Whether the line is the first thing a starting server says."""
    return "version " in line.text and _BANNER.search(line.text) is not None
