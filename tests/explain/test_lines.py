from __future__ import annotations

import json

import pytest

from vllm_eagle3_patches.explain.lines import LONGEST, Line, parse


def one(raw: str) -> Line:
    [line] = parse(1, raw)
    return line


@pytest.mark.parametrize(
    ("raw", "process", "level", "place", "text"),
    [
        ("a line of any program", None, None, None, "a line of any program"),
        ("ERROR 03-31 11:12:10 engine.py:389] x", None, "ERROR", "engine.py:389", "x"),
        ("INFO 03-31 11:12:10 [core.py:74] x", None, "INFO", "core.py:74", "x"),
        ("ERROR [patch_core.py:64] x", None, "ERROR", "patch_core.py:64", "x"),
        (
            "(Worker_TP1 pid=530) ERROR 10-06 18:54:30 [v1/executor/multiproc_executor.py:597]   x",
            "Worker_TP1",
            "ERROR",
            "v1/executor/multiproc_executor.py:597",
            "  x",
        ),
        ("(EngineCore_DP0 pid=1)   File", "EngineCore_DP0", None, None, "  File"),
        ("EngineCore_DP0 pid=1) lost", "EngineCore_DP0", None, None, "lost"),
        ("(VllmWorker rank=2 pid=9) x", "VllmWorker rank=2", None, None, "x"),
        ("(VllmWorker PP1_TP0 pid=9) x", "VllmWorker PP1_TP0", None, None, "x"),
        ("(Worker pid=5) (Worker_DP0_TP0_EP0 pid=5) x", "Worker_DP0_TP0_EP0", None, None, "x"),
        (
            "(EngineCore_DP0 pid=1) (RayWorkerWrapper pid=2, ip=10.0.0.1) x "
            "[repeated 14x across cluster]",
            "RayWorkerWrapper",
            None,
            None,
            "x",
        ),
        ("(pid=77) x", "pid 77", None, None, "x"),
        ("[rank0]:   File", "rank0", None, None, "  File"),
        ("(EngineCore pid=1) [rank0]: x", "EngineCore", None, None, "x"),
        ("web-1 (Worker_TP0 pid=3) x", "Worker_TP0", None, None, "x"),
        (
            "2026-11-02 13:17:04,315 - vllm.v1.engine.core - ERROR - x",
            None,
            "ERROR",
            "vllm.v1.engine.core",
            "x",
        ),
        ("\x1b[1;36m(APIServer pid=1)\x1b[0;0m x", "APIServer", None, None, "x"),
        ("^[[0;36m(APIServer pid=1)^[[0;0m x^M", "APIServer", None, None, "x"),
        ("[1;36m(APIServer pid=1)[0;0m x", "APIServer", None, None, "x"),
        (
            "ray::Worker.run() (pid=1, ip=2) x",
            None,
            None,
            None,
            "ray::Worker.run() (pid=1, ip=2) x",
        ),
    ],
)
def test_one_record(
    raw: str, process: str | None, level: str | None, place: str | None, text: str
) -> None:
    line = one(raw)
    assert (line.process, line.level, line.place, line.text) == (process, level, place, text)


def test_two_servers_of_one_name_are_told_apart() -> None:
    assert one("(Worker_TP0 pid=1) x").key != one("(Worker_TP0 pid=2) x").key


def test_the_time_is_kept() -> None:
    assert one("INFO 03-31 11:12:10 [core.py:74] x").time == "03-31 11:12:10"
    assert one("INFO 03-31 11:12:10.123 [core.py:74] x").time == "03-31 11:12:10"


@pytest.mark.parametrize(
    "outer",
    [
        "vllm-1  | ",
        "2026-03-11T17:57:10.976518836Z ",
        "2026-03-11T17:57:10+00:00 stderr F ",
        "[2026-01-27T09:24:41Z] ",
        "Nov 13 01:50:23 HOST vllm[62501]: ",
        "Nov  3 01:50:23 HOST bash[1]: ",
        "[pod/vllm-0/server] ",
        "INFO PyProcess W-162-chat-film-stdout: ",
        "> ",
        "vllm-1  | 2026-03-11T17:57:10.976518836Z ",
    ],
)
def test_outer_prefixes_come_off(outer: str) -> None:
    assert one(f"{outer}  File").text == "  File"
    assert one(f"{outer}(Worker_TP0 pid=1)   File").text == "  File"


def test_a_paste_without_line_ends() -> None:
    first = "(Worker_TP0 pid=1) ERROR 10-06 18:54:30 [core.py:7] one"
    second = "(Worker_TP1 pid=2) (Worker_TP1_EP1 pid=2) ERROR 10-06 18:54:30 [core.py:7] two"
    third = "(APIServer pid=3) three"
    found = list(parse(4, f"{first} {second} {third}"))
    assert [(line.process, line.text) for line in found] == [
        ("Worker_TP0", "one"),
        ("Worker_TP1_EP1", "two"),
        ("APIServer", "three"),
    ]
    assert {line.number for line in found} == {4}


def test_a_prefix_of_the_user_is_no_record() -> None:
    raw = "(Worker pid=1) [node] ERROR 10-06 18:54:30 [a.py:7] one "
    found = list(parse(1, raw * 2))
    assert [(line.process, line.text) for line in found] == [("Worker", "one"), ("Worker", "one ")]


def test_structured_logs() -> None:
    record = {
        "asctime": "2026-10-06 18:54:30,123",
        "levelname": "ERROR",
        "name": "vllm.v1.engine.core",
        "processName": "EngineCore",
        "process": 272,
        "message": "EngineCore failed to start.",
        "exc_info": "Traceback (most recent call last):\nValueError: x",
    }
    found = list(parse(1, json.dumps(record)))
    assert [line.text for line in found] == [
        "EngineCore failed to start.",
        "Traceback (most recent call last):",
        "ValueError: x",
    ]
    assert {(line.process, line.level, line.time) for line in found} == {
        ("EngineCore", "ERROR", "10-06 18:54:30")
    }


def test_a_collector_s_json() -> None:
    [line] = parse(1, '{"message": "\\u001b[36m(Worker_TP0 pid=1)\\u001b[0m x", "host": "a"}')
    assert (line.process, line.text) == ("Worker_TP0", "x")
    [line] = parse(1, 'vllm-1  | {"log": "(Worker_TP0 pid=1) x\\n"}')
    assert (line.process, line.text) == ("Worker_TP0", "x")


def test_json_in_a_message_is_not_the_record() -> None:
    raw = '(APIServer pid=1) ERROR 01-01 00:00:00 [a.py:1] answer {"object": 1, "message": "x"}'
    [line] = parse(1, raw)
    assert (line.process, line.text) == ("APIServer", 'answer {"object": 1, "message": "x"}')


@pytest.mark.parametrize("raw", ['{"message": 1}', '{"log": null}', '{"message"}', '{"log": "}'])
def test_what_only_looks_structured(raw: str) -> None:
    assert all(line.text in ("", raw) for line in parse(1, raw))


def test_a_record_is_cut_to_what_is_looked_at() -> None:
    assert len(one("x" * 3 * LONGEST).text) == LONGEST
