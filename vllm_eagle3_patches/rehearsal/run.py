"""One rehearsal from start to end: child processes, stages with their limits, the outcome."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.rehearsal import stages, supervise
from vllm_eagle3_patches.rehearsal.inside.alive import TEMPORARY
from vllm_eagle3_patches.rehearsal.stages import LIMITS, NAMES

LAUNCHER = Path(__file__).parent / "inside" / "launcher.py"
PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not run"
POLL = 0.05
TWINS_LOG = "twins.txt"
IMPORT_LIMIT = 300.0


@dataclass
class Result:
    """What became of one stage."""

    stage: str
    state: str = NOT_RUN
    seconds: float | None = None
    detail: str = ""
    peak: int = 0
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class Outcome:
    """What a rehearsal showed.

    Attributes:
        results: one for each stage, in their order.
        log: what the children wrote.
        seconds: from start to end.
        peak: bytes of memory that the children held at most.
        facts: of the child's interpreter: vLLM, torch, device.
    """

    results: list[Result]
    log: bytes = b""
    seconds: float = 0.0
    peak: int = 0
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def failed(self) -> Result | None:
        return next((r for r in self.results if r.state == FAILED), None)


Tell = Callable[[Result], None]


@contextmanager
def folder(keep: Path | None) -> Iterator[Path]:
    """Where the twins lie: a temporary folder that goes, or `keep`, which stays."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    made = Path(tempfile.mkdtemp(prefix=TEMPORARY))
    try:
        yield made
    finally:
        for _ in range(3):  # a process that was just killed may have been writing
            shutil.rmtree(made, ignore_errors=True)
            if not made.exists():
                break
            time.sleep(0.2)


def environment(place: Path, extra: Mapping[str, str], path: Sequence[str]) -> dict[str, str]:
    """The children's: vLLM's caches in the temporary folder, no network, nothing of ours."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONPYCACHEPREFIX")
    inherited = {k: v for k, v in os.environ.items() if k not in dropped}
    state = place / "state"
    settings = {
        "VLLM_CACHE_ROOT": state / "vllm",
        "VLLM_CONFIG_ROOT": state / "config",
        "VLLM_ASSETS_CACHE": state / "assets",
        "TORCHINDUCTOR_CACHE_DIR": state / "inductor",
        "TRITON_CACHE_DIR": state / "triton",
        "XDG_CACHE_HOME": state / "cache",
        "HF_HOME": state / "hf",
        "HF_HUB_OFFLINE": 1,
        "TRANSFORMERS_OFFLINE": 1,
        "VLLM_NO_USAGE_STATS": 1,
        "VLLM_LOGGING_LEVEL": "INFO",
        "VLLM_CONFIGURE_LOGGING": 1,
        "DO_NOT_TRACK": 1,
        "VLLM_ENABLE_V1_MULTIPROCESSING": 0,
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": 1,
        "PYTHONDONTWRITEBYTECODE": 1,
        "TMPDIR": state / "tmp",
        "TOKENIZERS_PARALLELISM": "false",
    }
    (state / "tmp").mkdir(parents=True, exist_ok=True)
    chosen = inherited | {k: str(v) for k, v in settings.items()} | dict(extra)
    own = os.environ.get("PYTHONPATH", "")
    path = [*path, *filter(None, own.split(os.pathsep))]
    if path:
        chosen["PYTHONPATH"] = os.pathsep.join(path)
    return chosen


def is_cpu(installation: Installation) -> bool:
    """Whether this is a CPU build, or there is no GPU here: what must be known before torch is."""
    devices = (*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("kfd"))
    named = f"{installation.distribution} {installation.version}".lower()
    return "cpu" in named or not devices


def run(
    python: Path, place: Path, request: dict[str, Any], env: Mapping[str, str], tell: Tell
) -> Outcome:
    """Starts both children, follows the stages, and ends them."""
    started = time.monotonic()
    log = place / "log.txt"
    events = supervise.Events(Path(request["events"]))
    asked = place / "request.json"
    asked.write_text(json.dumps(request))
    outcome = Outcome([Result(name) for name in NAMES])
    with ExitStack() as stack:
        stack.enter_context(supervise.signals())
        words = [str(python), str(LAUNCHER)]
        building = {**env, "CUDA_VISIBLE_DEVICES": ""}
        maker = stack.enter_context(
            supervise.child([*words, "checkpoint", str(asked)], building, place, place / TWINS_LOG)
        )
        engine = stack.enter_context(
            supervise.child([*words, "engine", str(asked)], env, place, log)
        )
        _Follow(outcome, events, place, maker, engine, tell).to_the_end()
    outcome.log = log.read_bytes()
    outcome.seconds = time.monotonic() - started
    return outcome


class _Follow:
    """The state of one run as its events come in."""

    def __init__(
        self,
        outcome: Outcome,
        events: supervise.Events,
        place: Path,
        maker: supervise.Child,
        engine: supervise.Child,
        tell: Tell,
    ) -> None:
        self.outcome, self.events, self.place, self.tell = outcome, events, place, tell
        self.maker, self.engine = maker, engine
        self.results = {result.stage: result for result in outcome.results}
        self.now = stages.TWINS
        self.since = time.monotonic()
        self.ended = False
        self.measured = 0.0

    def to_the_end(self) -> None:
        while not self.ended:
            code = self.engine.ended()  # before reading: all it has written is there then
            for event in self.events.new():
                self.take(event)
            if self.ended:
                break
            if code is not None:
                self.fail(f"the process ended, with {_status(code)}")
            elif self.now == stages.TWINS:
                self.twins()
            limit = LIMITS.get(self.now, IMPORT_LIMIT)
            if time.monotonic() - self.since > limit:
                self.fail(f"not done within {limit:.0f} s")
            self.measure()
            time.sleep(POLL)

    def measure(self) -> None:
        if time.monotonic() - self.measured > 0.5:
            self.measured = time.monotonic()
            held = sum(supervise.memory(c.process.pid) for c in (self.maker, self.engine))
            self.outcome.peak = max(self.outcome.peak, held)
            if self.now in self.results:
                here = self.results[self.now]
                here.peak = max(here.peak, held)

    def twins(self) -> None:
        """The weights are made: the engine may begin."""
        code = self.maker.ended()
        made = self.place / "checkpoint.json"
        if code is None:
            return
        if code != 0 or not made.exists():
            said = (self.place / TWINS_LOG).read_text(errors="replace").strip().splitlines()
            last = f": {said[-1]}" if said else ""
            self.fail(f"making the weights ended with {_status(code)}{last}")
            return
        found = json.loads(made.read_text())
        detail = (
            f"{found['class']}, {found['parameters'] / 1e6:.1f} M parameters"
            if found["checkpoint"]
            else f"no checkpoint: {found['why']}; vLLM fills the target with random values itself"
        )
        self.settle(stages.TWINS, PASSED, detail, found)
        (self.place / "ready.tmp").write_text(json.dumps(found))
        (self.place / "ready.tmp").rename(self.place / "ready.json")
        self.at("import")

    def at(self, stage: str) -> None:
        if stage != self.now:
            self.now, self.since = stage, time.monotonic()

    def take(self, event: dict[str, Any]) -> None:
        kind, stage = event["event"], event.get("stage")
        if kind == "imported":
            self.outcome.facts |= {k: v for k, v in event.items() if k not in ("event", "time")}
        elif kind == "begin" and self.results[str(stage)].state == NOT_RUN:
            self.at(str(stage))
        elif kind in (PASSED, SKIPPED):
            if self.results[str(stage)].state == NOT_RUN:
                self.settle(str(stage), kind, event["detail"], event["facts"])
                self.at(self.following(str(stage)))
        elif kind == "left":
            left = self.results[str(stage)]
            left.detail = event["detail"]
            self.tell(left)
        elif kind == FAILED:
            self.fail(event["detail"], stage, event["facts"])
        elif kind == "end":
            self.ended = True

    def following(self, stage: str) -> str:
        """The next stage to be seen: what fails before it begins belongs to it."""
        later = NAMES[NAMES.index(stage) + 1 :]
        return next((n for n in later if self.results[n].state == NOT_RUN), stage)

    def settle(self, stage: str, state: str, detail: str, facts: dict[str, Any]) -> None:
        result = self.results[stage]
        result.state, result.detail, result.facts = state, detail, facts
        result.seconds = time.monotonic() - self.since
        self.since = time.monotonic()
        self.tell(result)

    def fail(
        self, detail: str, stage: str | None = None, facts: dict[str, Any] | None = None
    ) -> None:
        where = stage or self.now
        if where not in self.results or (where == stages.TWINS and facts):
            where = stages.CONFIGS  # the engine's process, in its imports
        self.settle(where, FAILED, detail, facts or {})
        self.ended = True


def _status(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
