"""What `explain` costs on a long log, in seconds for 100 MB and peak memory, for `make bench`.

The log is what a server writes that runs for weeks (or one that is told to say much), with the
error at its very end, which has to be found. Each kind of noise is measured by itself. Nothing
fails on the limits, which are the issue's; a wrong answer fails.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

MB = 1_000_000
BLOCK = 5 * MB
SECONDS, MEMORY = 15.0, 100.0  # for 100 MB, and MB
FAILURE = (
    "(Worker_TP0 pid=530) ERROR 10-06 18:54:30 [multiproc_executor.py:783] Traceback (most recent "
    "call last):\n"
    "(Worker_TP0 pid=530) ERROR 10-06 18:54:30 [multiproc_executor.py:783] RuntimeError: Model "
    "does not support EAGLE3 interface but aux_hidden_state_outputs was requested\n"
    "(EngineCore_DP0 pid=272) ERROR 10-06 18:54:31 [core.py:1100] EngineCore failed to start.\n"
)


def _stamp(number: int) -> str:
    return f"10-06 17:{number // 60 % 60:02}:{number % 60:02}"


def access(number: int) -> str:
    return f'INFO:     10.0.{number % 256}.7:{number % 60000} - "GET /health HTTP/1.1" 200 OK'


def throughput(number: int) -> str:
    return (
        f"INFO {_stamp(number)} [loggers.py:257] Engine 000: Avg prompt throughput: "
        f"{number % 900}.5 tokens/s, Avg generation throughput: 38.9 tokens/s, "
        "Running: 3 reqs, Waiting: 0 reqs"
    )


def metrics(number: int) -> str:
    return (
        f"INFO {_stamp(number)} [metrics.py:96] SpecDecoding metrics: Mean acceptance length: "
        f"2.35, Accepted: {number % 300} tokens, Drafted: {number % 300 + 200} tokens, "
        "Per-position acceptance rate: 0.7, 0.4, 0.2, Avg Draft acceptance rate: 45.0%"
    )


def request(number: int) -> str:
    return (
        f"INFO {_stamp(number)} [logger.py:39] Received request chatcmpl-{number:032x}: params: "
        "SamplingParams(n=1, presence_penalty=0.0, temperature=0.6), lora_request: None."
    )


def debug(number: int) -> str:
    return f"DEBUG {_stamp(number)} [shm_broadcast.py:394] message {number} of a rank"


def errors(number: int) -> str:
    return f"ERROR {_stamp(number)} [serving_chat.py:257] Error in request {number:08x}"


RANK = "(Worker_TP0 pid=530) ERROR 10-06 18:54:30 [multiproc_executor.py:783] "


def tracebacks(number: int) -> str:
    return f"Traceback (most recent call last):\n{RANK}ValueError: request {number}"


def frames(number: int) -> str:
    return f'  File "/usr/lib/python3/a{number % 99}.py", line {number}, in f\n    self.x()'


def processes(number: int) -> str:
    return f"(Worker_TP{number} pid={number}) ERROR {_stamp(number)} [a.py:1] ValueError: {number}"


def words(number: int) -> str:
    return f"ValueError: {'Attempted to load weight ( ' * 250}{number}"


def bars(number: int) -> str:
    return "\r".join(f"Capturing CUDA graphs (mixed): {i}%" for i in range(100))


def records(number: int) -> str:
    return " ".join(f"{RANK}Error {i}" for i in range(60))


def tiny(number: int) -> str:
    return "\n".join(["Error"] * 50)


def serving(number: int) -> str:
    kinds = (access, request, debug, throughput, metrics)
    return random.choices(kinds, (9, 3, 6, 1, 1))[0](number)


@dataclass(frozen=True)
class Figure:
    name: str
    seconds: float  # for 100 MB
    memory: float  # MB


def write(path: Path, noise: Callable[[int], str], size: int) -> int:
    """The log; returns the number of its lines before the failure."""
    random.seed(5)
    lines, length = [], 0
    while length < BLOCK:
        lines.append(f"(APIServer pid=1) {noise(len(lines))}\n")
        length += len(lines[-1])
    block = "".join(lines).encode()
    blocks = max(1, size // len(block))
    with path.open("wb") as file:
        for _ in range(blocks):
            file.write(block)
        file.write(FAILURE.encode())
    return blocks * block.count(b"\n")


def measure(path: Path, name: str, noise: Callable[[int], str], size: int) -> Figure:
    lines = write(path, noise, size)
    command = [sys.executable, "-m", "vllm_eagle3_patches", "explain", "--json", str(path)]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    answer = json.loads(process.stdout.read())
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    cause = answer["cause"]
    if process.returncode != 1 or (cause["class"], cause["log_line"]) != ("interface", lines + 2):
        raise SystemExit(f"{name}: the wrong answer: {answer}")
    each = 100 * MB / path.stat().st_size
    return Figure(name, seconds * each, usage.ru_maxrss / 1024)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=500, metavar="MB")
    size = parser.parse_args().size * MB
    kinds = {
        "a server that serves": (serving, size),
        "requests for its health only": (access, size // 5),
        "metrics only": (metrics, size // 5),
        "errors of requests only": (errors, size // 5),
        "tracebacks only": (tracebacks, size // 5),
        "one endless traceback": (frames, size // 5),
        "a new process in each line": (processes, size // 5),
        "a known text begun again and again": (words, size // 5),
        "progress bars": (bars, size // 5),
        "flattened records": (records, size // 5),
        "the same short line": (tiny, size // 5),
    }
    print(f"{'log of':36} {'s / 100 MB':>10} {'limit':>6} {'MiB':>6} {'limit':>6}")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        for name, (noise, length) in kinds.items():
            got = measure(Path(folder, "server.log"), name, noise, length)
            over = "  over" if got.seconds > SECONDS or got.memory > MEMORY else ""
            print(
                f"{got.name:36} {got.seconds:10.1f} {SECONDS:6.0f} {got.memory:6.0f} "
                f"{MEMORY:6.0f}{over}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
