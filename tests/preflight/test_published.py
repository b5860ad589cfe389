"""Published combinations: no error where they work, and the known one where they do not."""

from __future__ import annotations

import pytest
from real import CLOSED, NATIVE, sources

from preflight.examining import errors, findings
from preflight.published import (
    DEEPSEEK_V3,
    GPT_OSS_120B,
    GPT_OSS_NVIDIA,
    GPT_OSS_SHORT,
    GPT_OSS_V3,
    KIMI_K25,
    KIMI_MHA,
    KIMI_MLA,
    KIMI_MLA_31,
    LLAMA31_8B,
    LLAMA31_YUHUILI,
    LLAMA33_70B,
    LLAMA33_MODELOPT,
    LLAMA33_YUHUILI,
    QWEN3_4B,
    QWEN3_30B,
    QWEN3_31,
    QWEN3_SPECFORGE,
    SPECULATORS,
    Config,
    Shapes,
    tensors,
    with_settings,
)
from vllm_eagle3_patches import registry

VERSIONS = CLOSED + NATIVE
SHORT = tensors(GPT_OSS_SHORT, GPT_OSS_120B)
del SHORT["fc.weight"]

# name: target, drafter, its tensors (None: those that fit), the first version it works on.
COMBINATIONS: dict[str, tuple[Config, Config, Shapes | None, str]] = {
    "kimi-mha": (KIMI_K25, KIMI_MHA, None, "0.15.0"),
    "kimi-mla": (KIMI_K25, KIMI_MLA, None, "0.18.0"),
    # 0.22.1 loads it and leaves fc_norm out: a warning.
    "kimi-3.1-mla": (KIMI_K25, KIMI_MLA_31, None, "0.22.1"),
    "deepseek-mha": (
        DEEPSEEK_V3,
        with_settings(KIMI_MHA, vocab_size=129280),
        None,
        "0.11.0",
    ),
    "llama-3.1-yuhuili": (
        LLAMA31_8B,
        LLAMA31_YUHUILI,
        tensors(LLAMA31_YUHUILI, LLAMA31_8B, embedding=True),
        "0.10.1",
    ),
    "llama-3.3-yuhuili": (
        LLAMA33_70B,
        LLAMA33_YUHUILI,
        tensors(LLAMA33_YUHUILI, LLAMA33_70B, embedding=True),
        "0.10.1",
    ),
    "llama-3.3-modelopt": (LLAMA33_70B, LLAMA33_MODELOPT, None, "0.10.2"),
    # 0.10.2 cannot keep heads of 80 beside the target's of 128 in one KV cache.
    "qwen3-specforge": (QWEN3_4B, QWEN3_SPECFORGE, None, "0.11.0"),
    "qwen3-3.1": (QWEN3_30B, QWEN3_31, None, "0.22.1"),
    "gpt-oss": (GPT_OSS_120B, GPT_OSS_NVIDIA, None, "0.11.1"),
    "gpt-oss-short": (GPT_OSS_120B, GPT_OSS_SHORT, SHORT, "0.12.0"),
    "gpt-oss-v3": (GPT_OSS_120B, GPT_OSS_V3, None, "0.18.0"),
    "speculators": (LLAMA31_8B, SPECULATORS, None, "0.10.1"),
}


@pytest.mark.parametrize("name", COMBINATIONS)
@pytest.mark.parametrize("version", VERSIONS)
def test_errors_exactly_where_it_fails(
    name: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    model, drafter, shapes, first = COMBINATIONS[name]
    shapes = tensors(drafter, model) if shapes is None else shapes
    found = errors(findings(version, model, drafter, shapes))
    works = VERSIONS.index(version) >= VERSIONS.index(first)
    if works:
        assert not found
    elif model["architectures"][0] in registry.read(sources(version)):
        # That 0.10.2 captures nothing of gpt-oss is for the gates to say.
        assert found or (name, version) == ("gpt-oss", "0.10.2")


@pytest.mark.parametrize("version", ["0.18.0", "0.24.0", "0.32.0"])
def test_the_best_fitting_one_has_nothing_at_all(version: str) -> None:
    assert not findings(version, KIMI_K25, KIMI_MLA)


def test_command_of_a_public_recipe() -> None:
    """nvidia/Kimi-K2.5-NVFP4 with lightseekorg/kimi-k2.5-eagle3-mla, as published."""
    args = (
        "--tensor-parallel-size 4 --enable-expert-parallel --max-model-len 80000 "
        "--max-num-seqs 16 --trust-remote-code --quantization modelopt_fp4 --kv-cache-dtype fp8 "
        "--attention-backend auto --moe-backend flashinfer_trtllm --host 127.0.0.1 --port 8002 "
        '--speculative-config \'{"method":"eagle3","num_speculative_tokens":3}\''
    )
    for version in ("0.18.0", "0.32.0"):
        assert not findings(version, KIMI_K25, KIMI_MLA, args=args)
