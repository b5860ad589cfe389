"""One rehearsal from start to end: child processes, stages with their limits, the outcome."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vllm_eagle3_patches.errors import UsageError, WriteError
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.rehearsal import stages, supervise
from vllm_eagle3_patches.rehearsal.inside import space
from vllm_eagle3_patches.rehearsal.inside.alive import TEMPORARY
from vllm_eagle3_patches.rehearsal.stages import LIMITS, NAMES

LAUNCHER = Path(__file__).parent / "inside" / "launcher.py"
PASSED, FAILED, SKIPPED, NOT_RUN = "passed", "failed", "skipped", "not run"
POLL = 0.05
LOG, TWINS_LOG = "log.txt", "twins.txt"
# Of Python's, what would change the children; of vLLM's, what makes it write elsewhere.
DROPPED = (
    *("PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONPYCACHEPREFIX", "PYTHONINSPECT"),
    *("VLLM_TORCH_PROFILER_DIR", "VLLM_DEBUG_DUMP_PATH", "VLLM_LOGGING_CONFIG_PATH"),
    *("VLLM_TRACE_FUNCTION", "VLLM_MODEL_REDIRECT_PATH", "VLLM_DP_SIZE", "VLLM_DP_RANK"),
    *("VLLM_DP_RANK_LOCAL", "HF_MODULES_CACHE", "HF_HUB_CACHE", "HF_DATASETS_CACHE"),
    *("HUGGINGFACE_HUB_CACHE", "TRANSFORMERS_CACHE", "PYTORCH_TRANSFORMERS_CACHE"),
)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")  # would speak to the terminal
IMPORT_LIMIT = 300.0
ROOM = 2  # GB that twins and caches take at most, in words for a person


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
    """Where the twins lie: a temporary folder that goes, or `keep`, which stays.

    Raises:
        WriteError: what is done inside fails because the disk is full.
    """
    named = os.environ.get("TMPDIR")
    if keep is None and named and not os.access(named, os.W_OK | os.X_OK):
        raise WriteError("TMPDIR cannot be written", where=named, next="name another: TMPDIR=…")
    # Not mkdtemp: a signal that comes as it returns would leave the folder.
    made = keep or Path(tempfile.gettempdir(), f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        made.mkdir(0o777 if keep else 0o700, parents=bool(keep), exist_ok=bool(keep))
        yield made
    except (OSError, WriteError) as problem:
        if made.is_dir() and space.lacking(made, str(problem)):
            raise no_room(made, "no space is left for the twins") from problem
        raise
    finally:
        for _ in range(3 if keep is None else 0):
            shutil.rmtree(made, ignore_errors=True)
            if not made.exists():
                break
            time.sleep(0.2)  # a process that was just killed may have been writing


def environment(
    place: Path, users: Mapping[str, str], needed: Mapping[str, str], path: Sequence[str]
) -> dict[str, str]:
    """The children's: vLLM's caches in the temporary folder, no network, nothing of ours.

    `users` are the variables in front of the user's command; what keeps a rehearsal apart wins
    over them, as it does over this process's own.
    """
    given = {**os.environ, **users}
    inherited = {k: v for k, v in given.items() if k not in DROPPED}
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
        "VLLM_RPC_BASE_PATH": "state/tmp",  # from where they run: a socket's path has 107 bytes
        "VLLM_HOST_IP": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "TOKENIZERS_PARALLELISM": "false",
    }
    (state / "tmp").mkdir(parents=True, exist_ok=True)
    chosen = inherited | {k: str(v) for k, v in settings.items()} | dict(needed)
    own = given.get("PYTHONPATH", "")
    path = [*path, *filter(None, own.split(os.pathsep))]
    if path:
        chosen["PYTHONPATH"] = os.pathsep.join(path)
    return chosen


def no_room(place: Path, what: str) -> WriteError:
    return WriteError(
        what,
        where=place.parent if place.name.startswith(TEMPORARY) else place,
        next=f"free {ROOM} GB (and inodes) there, or name another folder: TMPDIR=… or --keep …",
    )


def is_cpu(installation: Installation) -> bool:
    """Whether this is a CPU build, or there is no GPU here: what must be known before torch is."""
    devices = (*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("kfd"))
    named = f"{installation.distribution} {installation.version}".lower()
    return "cpu" in named or not devices


def can_be_parallel(installation: Installation, size: int) -> None:
    """Raises UsageError where this machine has fewer GPUs, or a CPU build fewer cores."""
    cpu = is_cpu(installation)
    many = (os.cpu_count() or 1) if cpu else len(list(Path("/dev").glob("nvidia[0-9]*")))
    if size > many and (cpu or many):
        what = f"{many} {'core' if cpu else 'GPU'}{'s' if many > 1 else ''}"
        raise UsageError(
            f"--tensor-parallel-size is {size}, and this machine has {what}",
            next=f"--tensor-parallel-size {many}, or leave it out: one is enough for a rehearsal",
        )


def run(
    python: Path, place: Path, request: dict[str, Any], env: Mapping[str, str], tell: Tell
) -> Outcome:
    """Starts both children, follows the stages, and ends them.

    Raises:
        WriteError: a stage failed because the disk is full.
    """
    started = time.monotonic()
    log = place / LOG
    events = supervise.Events(Path(request["events"]))
    asked = place / "request.json"
    asked.write_text(json.dumps(request))
    outcome = Outcome([Result(name) for name in NAMES])
    with ExitStack() as stack:
        words = [str(python), str(LAUNCHER)]
        building = {**env, "CUDA_VISIBLE_DEVICES": ""}
        maker = stack.enter_context(
            supervise.child([*words, "checkpoint", str(asked)], building, place, place / TWINS_LOG)
        )
        engine = stack.enter_context(
            supervise.child([*words, "engine", str(asked)], env, place, log)
        )
        _Follow(outcome, events, place, maker, engine, tell).to_the_end()
    failed = outcome.failed
    if failed is not None and space.lacking(place, failed.detail):
        raise no_room(place, f"'{failed.stage}' failed: no space is left")
    of_twins = failed is not None and failed.stage == stages.TWINS
    outcome.log = (place / TWINS_LOG if of_twins else log).read_bytes()
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
                self.fail(f"the process ended, with {_status(code)}", facts=_facts(code))
            elif self.now == stages.TWINS:
                self.twins()
            limit = LIMITS.get(self.now, IMPORT_LIMIT)
            if time.monotonic() - self.since > limit:
                self.fail(f"not done within {limit:.0f} s", self.now)
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
            if not self.outcome.facts:  # the engine, in its imports, may lack the same: it decides
                return
            said = (self.place / TWINS_LOG).read_text(errors="replace").strip().splitlines()
            last = f": {said[-1]}" if said else ""
            detail = f"making the weights ended with {_status(code)}{last}"
            self.fail(detail, stages.TWINS, _facts(code))
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
        elif kind == "options":
            self.outcome.facts["options_left_out"] = event["left"]
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
        result.state, result.facts = state, facts
        result.detail = CONTROL.sub("?", " ".join(detail.split()))
        result.seconds = time.monotonic() - self.since
        self.since = time.monotonic()
        self.tell(result)

    def fail(
        self, detail: str, stage: str | None = None, facts: dict[str, Any] | None = None
    ) -> None:
        where = stage or self.now
        if where not in self.results or (where == stages.TWINS and stage is None):
            where = stages.CONFIGS  # the engine's process, in its imports
        self.settle(where, FAILED, detail, facts or {})
        self.ended = True


def _facts(code: int) -> dict[str, Any]:
    return {"killed": True} if code == -signal.SIGKILL else {}


def _status(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
