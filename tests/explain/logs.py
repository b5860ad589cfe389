"""Logs as vLLM writes them, and as people have them: every prefix form around any error.

`test_logs.py` holds the builder to vLLM's own formatter and prefixing code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

SITE = "/usr/local/lib/python3.12/dist-packages/"
CYAN, RESET = "\033[0;36m", "\033[0;0m"


@dataclass(frozen=True)
class Frame:
    path: str
    function: str
    code: str
    line: int = 123


@dataclass(frozen=True)
class Error:
    """An exception with the innermost frames of its traceback."""

    exception: str
    message: str
    frames: Sequence[Frame] = ()

    def traceback(self) -> list[str]:
        lines = ["Traceback (most recent call last):"]
        for frame in self.frames:
            lines.append(f'  File "{SITE}{frame.path}", line {frame.line}, in {frame.function}')
            lines.append(f"    {frame.code}")
            lines.append(f"    {'^' * len(frame.code)}")
        said = f"{self.exception}: {self.message}" if self.message else self.exception
        return [*lines, *said.split("\n")]


@dataclass(frozen=True)
class Process:
    """A process of one form: `prefix` stands before each of its lines, also the raw ones."""

    prefix: str
    level: str = "{level} {time} [{place}] "
    raw_prefix: str | None = None

    def logged(
        self, text: Sequence[str], place: str, level: str = "ERROR", time: str = "10-06 18:54:30"
    ) -> list[str]:
        head = self.prefix + self.level.format(level=level, time=time, place=place)
        return [head + line for line in text]

    def raw(self, text: Sequence[str]) -> list[str]:
        prefix = self.prefix if self.raw_prefix is None else self.raw_prefix
        return [prefix + line for line in text]


@dataclass(frozen=True)
class Form:
    """How one era of vLLM names its processes."""

    api: Process
    engine: Process
    workers: Sequence[Process]
    worker_place: str = "multiproc_executor.py:597"
    engine_place: str = "core.py:718"
    banner: str = "vLLM API server version 0.17.1"


BARE = Process("")
OLD_LEVEL = "{level} {time} {place}] "
FORMS = {
    "v0": Form(
        Process("", OLD_LEVEL),
        Process("", OLD_LEVEL),
        [Process(f"(VllmWorkerProcess pid={500 + i}) ", OLD_LEVEL) for i in range(2)],
        "multiproc_worker_utils.py:238",
        "engine.py:389",
        "vLLM API server version 0.6.6",
    ),
    "0.8": Form(
        BARE, BARE, [Process(f"(VllmWorker rank={i} pid={500 + i}) ") for i in range(2)],
        banner="vLLM API server version 0.8.5",
    ),
    "0.10.0": Form(
        Process("(APIServer pid=1) "),
        Process("(EngineCore_0 pid=272) "),
        [Process(f"(VllmWorker TP{i} pid={500 + i}) ") for i in range(2)],
        banner="vLLM API server version 0.10.0",
    ),
    "0.11": Form(
        Process("(APIServer pid=1) "),
        Process("(EngineCore_DP0 pid=272) "),
        [Process(f"(Worker_TP{i} pid={500 + i}) ") for i in range(2)],
    ),
    "0.11, one GPU": Form(
        Process("(APIServer pid=1) "), Process("(EngineCore_DP0 pid=272) "),
        [Process("(EngineCore_DP0 pid=272) ")],
    ),
    "0.11, debug": Form(
        Process("(APIServer pid=1) "),
        Process("(EngineCore_DP0 pid=272) "),
        [Process(f"(Worker_TP{i} pid={500 + i}) ") for i in range(2)],
        "v1/executor/multiproc_executor.py:597",
        "v1/engine/core.py:718",
    ),
    "0.15, colours": Form(
        Process(f"{CYAN}(APIServer pid=1){RESET} "),
        Process(f"{CYAN}(EngineCore_DP0 pid=272){RESET} "),
        [
            Process(
                f"{CYAN}(Worker_TP{i} pid={500 + i}){RESET} ",
                "\033[31m{level}\033[0m \033[90m{time}\033[0m \033[90m[{place}]\033[0m ",
            )
            for i in range(2)
        ],
    ),
    "0.18, experts": Form(
        Process("(APIServer pid=1) "),
        Process("(EngineCore_DP0 pid=272) "),
        [Process(f"(Worker pid={500 + i}) (Worker_DP0_TP{i}_EP{i} pid={500 + i}) ")
         for i in range(2)],
    ),
    "0.24": Form(
        Process("(APIServer pid=1) "),
        Process("(EngineCore pid=272) "),
        [Process(f"(Worker_TP{i} pid={500 + i}) ") for i in range(2)],
    ),
    "0.32": Form(
        Process("(APIServer pid=1) ", raw_prefix=""),
        Process("(EngineCore pid=272) ", raw_prefix=""),
        [Process(f"(Worker_PP0_TP{i} pid={500 + i}) ", raw_prefix="") for i in range(2)],
        banner="vLLM server version 0.32.0, serving model moonshotai/Kimi-K2.5",
    ),
    "ray": Form(
        Process("(APIServer pid=1) "),
        Process("(EngineCore_DP0 pid=272) "),
        [
            Process(f"(EngineCore_DP0 pid=272) (RayWorkerWrapper pid={500 + i}, ip=10.0.0.{i}) ")
            for i in range(2)
        ],
        "worker_base.py:620",
    ),
    "no time": Form(
        Process("(APIServer pid=1) ", "{level} [{place}] "),
        Process("(EngineCore_DP0 pid=272) ", "{level} [{place}] "),
        [Process(f"(Worker_TP{i} pid={500 + i}) ", "{level} [{place}] ") for i in range(2)],
        "patch_core.py:64",
    ),
    "own prefix": Form(
        Process("(APIServer pid=1) ", "[node-7] {level} {time} [{place}] "),
        Process("(EngineCore_DP0 pid=272) ", "[node-7] {level} {time} [{place}] "),
        [
            Process(f"(Worker_TP{i} pid={500 + i}) ", "[node-7] {level} {time} [{place}] ")
            for i in range(2)
        ],
    ),
    "own configuration": Form(
        Process("", "2026-{time},315 - vllm.entrypoints.openai.api_server - {level} - "),
        Process("", "2026-{time},315 - vllm.v1.engine.core - {level} - "),
        [Process("", "2026-{time},315 - vllm.v1.executor.multiproc_executor - {level} - ")],
    ),
    "torchrun": Form(BARE, BARE, [Process(f"[rank{i}]: ") for i in range(2)]),
}  # fmt: skip


@dataclass(frozen=True)
class Log:
    """The lines of a log by process; a log as it is read is one interleaving of them."""

    streams: Sequence[Sequence[str]]
    root: str = field(default="")  # a line with this in it names the cause

    def lines(self) -> list[str]:
        return [line for stream in self.streams for line in stream]

    def text(self, outer: Callable[[str], str] = str) -> bytes:
        return "".join(f"{outer(line)}\n" for line in self.lines()).encode()


def prologue(form: Form) -> list[str]:
    return [
        *form.api.logged([form.banner], "api_server.py:1839", "INFO", "10-06 18:50:00"),
        *form.api.logged(
            [
                "non-default args: {'model': 'moonshotai/Kimi-K2.5', 'speculative_config': "
                "{'method': 'eagle3', 'model': 'lightseekorg/kimi-k2.5-eagle3', "
                "'num_speculative_tokens': 3}}"
            ],
            "utils.py:233",
            "INFO",
            "10-06 18:50:00",
        ),
    ]


def dead_api_server(form: Form, codes: str = "{'EngineCore_DP0': 1}") -> list[str]:
    said = "Engine core initialization failed. See root cause above. Failed core proc(s): "
    return form.api.raw(Error("RuntimeError", said + codes).traceback())


def worker_failure(form: Form, error: Error) -> Log:
    """Each rank dies of the error; the engine core and the API server die of the ranks."""
    wrapper = Error(
        "Exception",
        "WorkerProc initialization failed due to an exception in a background process. "
        "See stack trace for root cause.",
        [Frame("vllm/v1/engine/core.py", "run_engine_core", "engine_core = EngineCoreProc(")],
    )
    unprefixed: list[str] = []
    streams: list[list[str]] = []

    def add(process: Process, *lines: Sequence[str]) -> None:
        stream = [line for part in lines for line in part]
        if process.prefix and process.raw_prefix != "":
            streams.append(stream)
        else:
            unprefixed.extend(stream)

    for worker in form.workers:
        said = ["WorkerProc failed to start.", *error.traceback()]
        loading = "Loading drafter model..."
        add(
            worker,
            worker.logged([loading], "gpu_model_runner.py:2641", "INFO", "10-06 18:54:00"),
            worker.logged(said, form.worker_place),
        )
    add(
        form.engine,
        form.engine.logged(
            ["EngineCore failed to start.", *wrapper.traceback()], form.engine_place
        ),
        form.engine.raw(["Process EngineCore_DP0:", *wrapper.traceback()]),
    )
    add(form.api, prologue(form), dead_api_server(form))
    return Log([*streams, unprefixed] if unprefixed else streams, root=_root(error))


def api_failure(form: Form, error: Error, config: str = "SpeculativeConfig") -> Log:
    """The API server dies while it validates the configuration, as pydantic reports it."""
    kind = {"ValueError": "Value error", "AssertionError": "Assertion failed"}.get(error.exception)
    if kind is not None:
        shown = (
            f"1 validation error for {config}\n  {kind}, {error.message} "
            "[type=value_error, input_value=ArgsKwargs((), {'method':..., _api_process_rank=0)}), "
            "input_type=ArgsKwargs]\n"
            "    For further information visit https://errors.pydantic.dev/2.12/v/value_error"
        )
        error = Error("pydantic_core._pydantic_core.ValidationError", shown, error.frames)
    stream = [*prologue(form), *form.api.raw(error.traceback())]
    return Log([stream], root=_root(error))


def _root(error: Error) -> str:
    lines = error.message.split("\n")
    return lines[1] if "validation error" in lines[0] else lines[0]


def healthy(form: Form, accepted: int = 545, drafted: int = 1000) -> Log:
    """A server that came up after four and a half minutes, and serves."""
    api, worker = form.api, form.workers[0]
    info = "INFO"
    return Log(
        [
            [
                *prologue(form),
                *api.logged(
                    ["Resolved architecture: KimiK25ForConditionalGeneration"], "model.py:7", info
                ),
                *api.logged(["Resolved architecture: Eagle3LlamaForCausalLM"], "model.py:7", info),
                *worker.logged(["Starting to load model moonshotai/Kimi-K2.5..."], "g.py:1", info),
                *shards(100),
                *worker.logged(["Loading drafter model..."], "gpu_model_runner.py:1", info),
                *worker.logged(
                    ["Using auxiliary layers from speculative config: (2, 30, 58)"], "g.py:2", info
                ),
                *api.logged(["Starting vLLM API server 0 on http://0.0.0.0:8000"], "a.py:9", info),
                *api.raw(["INFO:     Application startup complete."]),
                *api.logged(
                    [
                        "SpecDecoding metrics: Mean acceptance length: 2.63, Accepted throughput: "
                        f"17.40 tokens/s, Drafted throughput: 45.10 tokens/s, Accepted: {accepted} "
                        f"tokens, Drafted: {drafted} tokens, Per-position acceptance rate: 0.700, "
                        "0.500, 0.400, Avg Draft acceptance rate: 54.5%"
                    ],
                    "metrics.py:96",
                    info,
                    "10-06 18:55:00",
                ),
            ]
        ]
    )


def shards(percent: int) -> list[str]:
    return [
        f"Loading safetensors checkpoint shards: {percent:3}% Completed | {percent}/100 "
        "[06:51<00:00,  6.43s/it]"
    ]


def _json_file(line: str) -> str:
    return json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-03-11T17:57:10Z"})


OUTER: dict[str, Callable[[str], str]] = {
    "none": str,
    "compose": lambda line: f"vllm-1  | {line}",
    "kubernetes": lambda line: f"2026-03-11T17:57:10.976518836Z {line}",
    "container runtime": lambda line: f"2026-03-11T17:57:10.976518836Z stderr F {line}",
    "buildkite": lambda line: f"[2026-01-27T09:24:41Z] {line}",
    "buildkite, raw": lambda line: f"\x1b_bk;t=1769505881012\x07{line}",
    "journald": lambda line: f"Nov 13 01:50:23 gpu-host vllm[62501]: {line}",
    "kubectl": lambda line: f"[pod/vllm-5f6d8-abcde/server] {line}",
    "djl": lambda line: f"INFO PyProcess W-162-chat-film-stdout: {line}",
    "quotation": lambda line: f"> {line}",
    "docker json": _json_file,
    "escapes as text": lambda line: line.replace("\033", "^[") + "^M",
    "escapes lost": lambda line: line.replace("\033", ""),
    "carriage returns": lambda line: f"{line}\r",
}


def flattened(log: Log) -> bytes:
    """A paste that lost its line ends, and the first parenthesis with them."""
    return " ".join(log.lines()).removeprefix("(").encode()


def interleaved(log: Log, choices: Sequence[int]) -> Log:
    """The same log, the processes' lines mixed as the choices say; each keeps its own order."""
    rests = [list(stream) for stream in log.streams]
    mixed = []
    for choice in choices:
        rests = [rest for rest in rests if rest]
        if not rests:
            break
        mixed.append(rests[choice % len(rests)].pop(0))
    return Log([[*mixed, *(line for rest in rests for line in rest)]], log.root)
