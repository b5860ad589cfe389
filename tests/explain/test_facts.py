from __future__ import annotations

from datetime import timedelta

import pytest

from explain.logs import FORMS, healthy, prologue, shards
from explain.reading import read
from vllm_eagle3_patches.explain.facts import Facts
from vllm_eagle3_patches.explain.report import LOADING, POOR_ACCEPTANCE, UP


def facts(*lines: str) -> Facts:
    return read("".join(f"{line}\n" for line in lines).encode()).facts


def test_a_healthy_server() -> None:
    found = read(healthy(FORMS["0.11"]).text())
    assert found.status == UP
    got = found.facts
    assert got.version == "0.17.1"
    assert got.model == "moonshotai/Kimi-K2.5"
    assert got.drafter == "lightseekorg/kimi-k2.5-eagle3"
    assert got.target_architecture == "KimiK25ForConditionalGeneration"
    assert got.drafter_architecture == "Eagle3LlamaForCausalLM"
    assert got.aux_layers == "(2, 30, 58)"
    assert got.took == timedelta(minutes=4, seconds=30)
    assert (got.acceptance, got.length) == (0.545, 2.63)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("INFO 01-01 00:00:00 [a.py:1] vLLM API server version 0.10.1.1", "0.10.1.1"),
        ("INFO 01-01 00:00:00 [a.py:1] vLLM server version 0.32.0, serving model x", "0.32.0"),
        ("INFO 01-01 00:00:00 [utils.py:297]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.18.0", "0.18.0"),
        (
            "INFO 01-01 00:00:00 [core.py:74] Initializing a V1 LLM engine (v0.11.2.dev259+gabc) "
            "with config: model='/m', speculative_config=SpeculativeConfig(method='eagle3', "
            "model='/d', num_spec_tokens=3)",
            "0.11.2.dev259+gabc",
        ),
    ],
)
def test_versions(line: str, version: str) -> None:
    assert facts(line).version == version


def test_models_of_the_engine_s_own_line() -> None:
    got = facts(
        "INFO 01-01 00:00:00 [core.py:74] Initializing a V1 LLM engine (v0.11.2) with config: "
        "model='/m', speculative_config=SpeculativeConfig(method='eagle3', model='/d', "
        "num_spec_tokens=3), tokenizer='/m'"
    )
    assert (got.model, got.drafter) == ("/m", "/d")


@pytest.mark.parametrize(
    "line",
    [
        "Using auxiliary layers from speculative config: (2, 30, 58)",
        "Using Eagle3 auxiliary layers from config: (2, 30, 58)",
        "Using Eagle3 auxiliary layers from model: (2, 30, 58)",
    ],
)
def test_aux_layers(line: str) -> None:
    assert facts(f"INFO 01-01 00:00:00 [a.py:1] {line}").aux_layers == "(2, 30, 58)"


def test_how_far_a_load_has_come() -> None:
    form = FORMS["0.11"]
    worker = form.workers[0]
    target = worker.logged(["Starting to load model x..."], "a.py:1", "INFO")
    drafter = worker.logged(["Loading drafter model..."], "a.py:1", "INFO")
    found = read("".join(f"{x}\n" for x in [*prologue(form), *target, *shards(83)]).encode())
    assert found.status == LOADING
    assert (found.facts.stage, found.facts.percent) == ("loading the target", 83)
    got = facts(*prologue(form), *target, *shards(100), *drafter, *shards(50))
    assert (got.stage, got.percent) == ("loading the drafter", 50)
    bar = "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  45%|████▌     | 30/67"
    assert (facts(bar).stage, facts(bar).percent) == ("capturing CUDA graphs", 45)
    several = b"Capturing CUDA graphs:   1%|\rCapturing CUDA graphs:  97%|"
    assert read(several).facts.percent == 97


def test_acceptance_over_all_reports() -> None:
    one = healthy(FORMS["0.11"], 100, 1000).lines()[-1]
    two = healthy(FORMS["0.11"], 900, 1000).lines()[-1]
    assert facts(one, two).acceptance == 0.5


def test_the_older_wording_of_the_metrics() -> None:
    got = facts(
        "INFO 01-01 00:00:00 [metrics.py:86] SpecDecoding metrics: Draft acceptance rate: 54.5%, "
        "Mean acceptance length: 2.63, Accepted: 545 tokens, Drafted: 1000 tokens, Per-position "
        "acceptance rate: 0.7, 0.5, 0.4"
    )
    assert (got.acceptance, got.length) == (0.545, 2.63)


@pytest.mark.parametrize(("accepted", "doubted"), [(12, True), (250, False), (545, False)])
def test_poor_acceptance_is_doubted(accepted: int, doubted: bool) -> None:
    found = read(healthy(FORMS["0.11"], accepted, 1000).text())
    assert (found.status, found.cause) == (UP, None)
    assert ([other.kind for other in found.also] == ["aux-layers"]) == doubted
    assert (accepted / 1000 < POOR_ACCEPTANCE) == doubted


def test_few_drafted_tokens_prove_nothing() -> None:
    assert read(healthy(FORMS["0.11"], 0, 60).text()).also == ()


@pytest.mark.parametrize(
    "line",
    [
        "INFO:     Application startup complete.",
        "INFO:     Uvicorn running on http://0.0.0.0:8000 (Press CTRL+C to quit)",
        'INFO:     10.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK',
        "INFO 01-01 00:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg",
    ],
)
def test_what_shows_that_a_server_is_up(line: str) -> None:
    found = read(f"INFO 01-01 00:00:00 [a.py:1] vLLM API server version 1\n{line}\n".encode())
    assert found.status == UP
    assert (found.facts.took == timedelta()) == ("complete" in line or "Uvicorn" in line)


def test_over_new_year() -> None:
    got = facts(
        "INFO 12-31 23:59:30 [a.py:1] vLLM API server version 0.17.1",
        "INFO 01-01 00:03:00 [a.py:1] Starting vLLM API server 0 on http://0.0.0.0:8000",
        "INFO:     Application startup complete.",
    )
    assert got.took == timedelta(minutes=3, seconds=30)
