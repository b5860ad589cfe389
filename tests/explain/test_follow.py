"""Following a log that another process writes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from subprocess import PIPE

import pytest
from command import TOOL

from explain.logs import FORMS, Error, healthy, prologue, shards, worker_failure
from vllm_eagle3_patches.errors import UsageError
from vllm_eagle3_patches.explain import follow as following
from vllm_eagle3_patches.explain.follow import follow
from vllm_eagle3_patches.explain.report import FAILED, UP, report
from vllm_eagle3_patches.explain.scan import Scanner

FORM = FORMS["0.11"]
INTERFACE = Error("RuntimeError", "Model does not support EAGLE3 interface")
LOADING = [*prologue(FORM), *shards(12), *shards(50)]
SERVER = """
import sys, time
path, pause = sys.argv[1], float(sys.argv[2])
for line in sys.stdin.read().splitlines(keepends=True):
    with open(path, "a") as log:
        log.write(line[:9]); log.flush()
        log.write(line[9:])
    time.sleep(pause)
time.sleep(60)  # a server does not end when it has said what it has to say
"""
PATIENCE = 30  # seconds


@pytest.fixture
def servers() -> Iterator[list[subprocess.Popen[bytes]]]:
    running: list[subprocess.Popen[bytes]] = []
    yield running
    for server in running:
        server.kill()
        server.wait()


def serve(
    servers: list[subprocess.Popen[bytes]], path: Path, lines: Sequence[str], pause: float = 0.05
) -> None:
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(path), str(pause)], stdin=subprocess.PIPE
    )
    servers.append(server)
    assert server.stdin is not None
    server.stdin.write("".join(f"{line}\n" for line in lines).encode())
    server.stdin.close()


def run(path: Path) -> tuple[int, str, str]:
    done = subprocess.run(
        [*TOOL, "explain", "--follow", str(path)], capture_output=True, text=True, timeout=PATIENCE
    )
    return done.returncode, done.stdout, done.stderr


def test_returns_when_the_server_is_up(
    tmp_path: Path, servers: list[subprocess.Popen[bytes]]
) -> None:
    path = tmp_path / "server.log"
    lines = [*LOADING, *healthy(FORM).lines()]
    path.write_text("".join(f"{line}\n" for line in lines[:-5]))
    command = [*TOOL, "explain", "--follow", str(path)]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stderr is not None
        assert "loading the target" in process.stderr.readline()
        serve(servers, path, lines[-5:])
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert out.splitlines()[0] == "the server is up after 4 min 30 s"
    assert servers[0].poll() is None


def test_returns_when_the_server_has_failed(
    tmp_path: Path, servers: list[subprocess.Popen[bytes]]
) -> None:
    path = tmp_path / "server.log"
    serve(servers, path, [*LOADING, *worker_failure(FORM, INTERFACE).lines()], 0.02)
    code, out, _ = run(path)
    assert code == 1
    assert "vllm-eagle3-patch apply" in out
    assert servers[0].poll() is None


def test_goes_on_as_long_as_the_server_loads(
    tmp_path: Path, servers: list[subprocess.Popen[bytes]]
) -> None:
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line}\n" for line in LOADING))
    serve(servers, path, [*shards(60), *shards(70), *healthy(FORM).lines()[-3:]], 0.5)
    began = time.monotonic()
    assert report(follow(path).story).status == UP
    assert time.monotonic() - began > 1


def test_a_log_that_is_complete_already(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(healthy(FORM).text())
    assert report(follow(path).story).status == UP
    path.write_bytes(worker_failure(FORM, INTERFACE).text())
    assert report(follow(path).story).status == FAILED


def test_an_earlier_start_in_the_log_does_not_count(
    tmp_path: Path, servers: list[subprocess.Popen[bytes]]
) -> None:
    path = tmp_path / "server.log"
    path.write_bytes(healthy(FORM).text() + b"INFO:     Application shutdown complete.\n")
    again = [line.replace("pid=1)", "pid=2)") for line in worker_failure(FORM, INTERFACE).lines()]
    serve(servers, path, [*again[-9:-3], *again], 0.01)
    assert report(follow(path).story).status == FAILED


def test_a_file_that_appears_late(tmp_path: Path, servers: list[subprocess.Popen[bytes]]) -> None:
    path = tmp_path / "server.log"
    told: list[Scanner] = []
    serve(servers, path, healthy(FORM).lines(), 0)
    assert report(follow(path, told.append).story).status == UP
    assert told


def test_a_file_that_is_replaced_or_cut_short(
    tmp_path: Path, servers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line}\n" for line in LOADING))
    steps = iter(
        [
            lambda: path.rename(tmp_path / "old"),
            lambda: path.write_text("".join(f"{line}\n" for line in LOADING)),
            lambda: path.write_text("x\n"),
            lambda: path.write_bytes(healthy(FORM).text()),
        ]
    )
    monkeypatch.setattr(time, "sleep", lambda _: next(steps, lambda: None)())
    assert report(follow(path).story).status == UP


def _rewritten(length: int) -> bytes:
    """Another log, longer than the one before it, as after copytruncate between two looks."""
    failed = worker_failure(FORM, INTERFACE).text()
    return b"INFO 10-06 18:54:30 [x.py:1] another\n" * (length // 37 + 1) + failed


def test_a_log_that_is_emptied_and_grows_past_the_place_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line}\n" for line in LOADING))
    steps = iter([lambda: path.write_bytes(_rewritten(path.stat().st_size))])
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda s: next(steps, lambda: sleep(s))())
    assert report(follow(path).story).status == FAILED


def test_a_writer_that_goes_on_at_its_place_leaves_a_hole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.log"
    failed = worker_failure(FORM, INTERFACE).text()
    with path.open("wb", buffering=0) as log:
        log.write("".join(f"{line}\n" for line in LOADING).encode())

        def rotate() -> None:
            os.truncate(path, 0)
            log.write(failed)  # at the old place

        steps = iter([rotate])
        sleep = time.sleep
        monkeypatch.setattr(time, "sleep", lambda s: next(steps, lambda: sleep(s))())
        assert report(follow(path).story).status == FAILED


def test_what_is_written_just_before_the_rotation_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.log"
    path.write_text("".join(f"{line}\n" for line in LOADING))

    def rotate() -> None:
        with path.open("ab") as log:
            log.write(worker_failure(FORM, INTERFACE).text())
        path.rename(tmp_path / "server.log.1")
        path.write_text("\n")

    steps = iter([rotate])
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda s: next(steps, lambda: sleep(s))())
    assert report(follow(path).story).status == FAILED


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        (healthy(FORM).text(), 0, "the server is up"),
        (worker_failure(FORM, INTERFACE).text(), 1, "failed"),
        ("".join(f"{line}\n" for line in LOADING).encode(), 1, "the input ended before"),
    ],
)
def test_a_pipe_ends_where_its_writer_does(name: str, text: bytes, code: int, word: str) -> None:
    done = subprocess.run(
        [*TOOL, "explain", "--follow", name], input=text, capture_output=True, timeout=PATIENCE
    )
    assert (done.returncode, word in done.stdout.decode()) == (code, True), done


def test_a_pipe_is_left_the_moment_the_server_is_up() -> None:
    command = [*TOOL, "explain", "--follow", "-"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(healthy(FORM).text())
        process.stdin.flush()
        assert process.wait(PATIENCE) == 0  # the writing end is still open


def test_a_named_pipe(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    command = [*TOOL, "explain", "--follow", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        path.write_bytes(worker_failure(FORM, INTERFACE).text())
        assert process.wait(PATIENCE) == 1


def test_an_error_nobody_called_fatal_counts_after_a_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SILENT", 0.3)
    path = tmp_path / "server.log"
    lines = [*prologue(FORM), *FORM.api.raw(INTERFACE.traceback())]
    path.write_text("".join(f"{line}\n" for line in lines))
    found = report(follow(path).story)
    assert found.cause is not None and found.cause.kind == "interface"


def test_a_dying_server_may_go_on_talking(
    tmp_path: Path, servers: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "SILENT", 0.8)
    path = tmp_path / "server.log"
    path.write_bytes(worker_failure(FORM, INTERFACE).text())
    serve(servers, path, ["another line of another process"] * 1000, 0.01)
    assert report(follow(path).story).status == FAILED
    assert servers[0].poll() is None


def test_what_was_written_before_is_read_to_its_end_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "BLOCK", 100)
    path = tmp_path / "server.log"
    failed = worker_failure(FORM, INTERFACE).text().replace(b"APIServer pid=1", b"APIServer pid=2")
    again = "".join(f"{line}\n" for line in prologue(FORM)).replace("pid=1", "pid=2").encode()
    path.write_bytes(healthy(FORM).text() + again + failed)
    assert report(follow(path).story).status == FAILED


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        follow(tmp_path)


def test_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "APPEARS_WITHIN", 0.2)
    with pytest.raises(UsageError, match="there is no such log"):
        follow(tmp_path / "server.log")
    monkeypatch.setattr(following, "APPEARS_WITHIN", 60)
    with pytest.raises(UsageError):
        follow(tmp_path / "no folder" / "server.log")
