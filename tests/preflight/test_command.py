from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_eagle3_patches.errors import UsageError
from vllm_eagle3_patches.preflight.command import Serve, arguments, command_line

SPECULATIVE = '\'{"method": "eagle3", "model": "d", "num_speculative_tokens": 3}\''
WANTED = {"method": "eagle3", "model": "d", "num_speculative_tokens": 3}


def serve(text: str) -> Serve:
    return command_line(shlex.split(text))


@pytest.mark.parametrize(
    "option",
    [
        f"--speculative-config {SPECULATIVE}",
        f"--speculative_config={SPECULATIVE}",
        f"-sc {SPECULATIVE}",
        "--speculative-config.method eagle3 --speculative-config.model d "
        "--speculative-config.num_speculative_tokens 3",
        "--speculative_config.method=eagle3 --speculative_config.model=d "
        "--speculative_config.num-speculative-tokens=3",
        "--spec-method eagle3 --spec-model d --spec-tokens 3",
    ],
)
def test_speculative_config(option: str) -> None:
    found = serve(f"vllm serve org/model {option} --port 8000")
    assert (found.model, found.speculative, found.findings) == ("org/model", WANTED, ())


@pytest.mark.parametrize(
    "start",
    [
        "vllm serve org/model",
        "/opt/venv/bin/vllm serve org/model",
        "vllm serve --trust-remote-code org/model",
        "vllm serve --enable-expert-parallel -O3 org/model",
        "vllm serve --model org/model",
        "vllm serve -dp 8 org/model",
        "python3 -m vllm.entrypoints.openai.api_server --model=org/model",
        "env A=1 B=2 vllm serve org/model",
        "VLLM_USE_V2_MODEL_RUNNER=1 numactl -N 0 vllm serve org/model",
    ],
)
def test_model(start: str) -> None:
    assert serve(f"{start} -tp 8 --pipeline_parallel_size=2").model == "org/model"


def test_options() -> None:
    found = serve(
        "vllm serve m -tp 8 -pp=2 -q fp8 --dtype half --kv_cache_dtype fp8 --max-model-len 32K "
        "--no-enable-prefix-caching --seed -1 --attention-config.backend flashmla --unknown x"
    )
    assert (found.tensor_parallel, found.pipeline_parallel) == (8, 2)
    assert found.integer("max-model-len") == 32768
    assert found.attention_backend == "FLASHMLA"
    assert found.options["quantization"] == "fp8"
    assert found.options["dtype"] == "half"
    assert found.options["kv-cache-dtype"] == "fp8"
    assert found.options["seed"] == "-1"
    assert found.model == "m"


@pytest.mark.parametrize(
    ("text", "length"),
    [("8192", 8192), ("32k", 32000), ("32K", 32768), ("1.5k", 1500), ("1M", 2**20), ("auto", None)],
)
def test_lengths(text: str, length: int | None) -> None:
    assert arguments(f"--max-model-len {text}").integer("max-model-len") == length


@pytest.mark.parametrize(
    ("text", "backend"),
    [
        ("--attention-backend auto", None),
        ('--attention-config \'{"backend": "FLASH_ATTN"}\'', "FLASH_ATTN"),
        ("-ac.backend TRITON_MLA", "TRITON_MLA"),
        ("", None),
    ],
)
def test_attention_backend(text: str, backend: str | None) -> None:
    assert arguments(text).attention_backend == backend


@pytest.mark.parametrize("text", ["", "sglang serve m", "ls", "serve m", "A=1"])
def test_other_commands(text: str) -> None:
    with pytest.raises(UsageError):
        serve(text)


def test_open_quote() -> None:
    with pytest.raises(UsageError):
        arguments("--speculative-config '{")


def test_no_options() -> None:
    assert arguments("") == Serve()


@given(st.lists(st.text(max_size=12), max_size=8))
def test_any_words(words: list[str]) -> None:
    found = command_line(["vllm", "serve", *words])
    assert found.tensor_parallel >= 1
    assert isinstance(found.attention_backend, (str, type(None)))
