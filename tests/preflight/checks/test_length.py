from __future__ import annotations

import pytest

from preflight.examining import findings, matching, of_class
from preflight.published import (
    KIMI_K25,
    KIMI_MLA,
    LLAMA31_8B,
    LLAMA31_YUHUILI,
    QWEN3_4B,
    QWEN3_SPECFORGE,
    QWEN25_VL,
    with_settings,
)
from vllm_eagle3_patches.preflight import Severity

SPECULATIVE = (
    "--speculative-config.method eagle3 --speculative-config.num_speculative_tokens 3 "
    "--speculative-config.max_model_len "
)


@pytest.mark.parametrize(("version", "raised"), [("0.24.0", False), ("0.27.1", True)])
def test_short_drafter(version: str, raised: bool) -> None:
    """yuhuili/EAGLE3-LLaMA3.1-Instruct-8B, 2048 positions (vLLM issue 48894)."""
    (found,) = of_class(findings(version, LLAMA31_8B, LLAMA31_YUHUILI), "length")
    assert found.severity is Severity.WARNING
    assert ("raises the drafter's limit" in found.detail) is raised
    for args in ("--max-model-len 2048", "--max-model-len=2k", "--max-model-len 2K"):
        found_ = of_class(findings(version, LLAMA31_8B, LLAMA31_YUHUILI, args=args), "length")
        assert not found_


def test_yarn_counts() -> None:
    """4096 x 64 = 262144 positions for both."""
    assert not of_class(findings("0.18.0", KIMI_K25, KIMI_MLA), "length")
    plain = with_settings(KIMI_MLA, rope_scaling=None, max_position_embeddings=4096)
    assert of_class(findings("0.18.0", KIMI_K25, plain), "length")


@pytest.mark.parametrize(
    ("length", "args", "error"),
    [
        (40960, "", False),
        (40961, "", True),
        (8192, "--max-model-len 16384", False),
        (16385, "--max-model-len 16384", True),
    ],
)
def test_length_of_the_speculative_config(length: int, args: str, error: bool) -> None:
    args = f"{args} {SPECULATIVE}{length}"
    found = of_class(findings("0.18.0", QWEN3_4B, QWEN3_SPECFORGE, args=args), "length")
    assert [f.severity for f in found] == ([Severity.ERROR] if error else [])


def test_length_beyond_the_drafter() -> None:
    drafter = with_settings(QWEN3_SPECFORGE, max_position_embeddings=4096)
    args = f"--max-model-len 4096 {SPECULATIVE}4096"
    assert not of_class(findings("0.18.0", QWEN3_4B, drafter, args=args), "length")
    args = f"--max-model-len 8192 {SPECULATIVE}8192"
    found = matching(findings("0.18.0", QWEN3_4B, drafter, args=args), "length", "drafter's 4096")
    assert found[0].severity is Severity.ERROR


@pytest.mark.parametrize(("theta", "warned"), [(1000000, False), (10000, True)])
def test_rope_theta(theta: int, warned: bool) -> None:
    drafter = with_settings(QWEN3_SPECFORGE, rope_theta=theta)
    found = matching(findings("0.18.0", QWEN3_4B, drafter), "length", "rope_theta")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])


@pytest.mark.parametrize(("kind", "warned"), [("yarn", False), ("linear", True)])
def test_rope_type(kind: str, warned: bool) -> None:
    drafter = with_settings(KIMI_MLA, rope_scaling={**KIMI_MLA["rope_scaling"], "type": kind})
    found = matching(findings("0.18.0", KIMI_K25, drafter), "length", "type")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])


@pytest.mark.parametrize(("version", "warned"), [("0.14.1", True), ("0.15.0", False)])
def test_mrope_of_the_target(version: str, warned: bool) -> None:
    plain = with_settings(QWEN3_SPECFORGE, hidden_size=3584, vocab_size=152064)
    found = of_class(findings(version, QWEN25_VL, plain), "runtime")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])
    same = with_settings(plain, rope_scaling=QWEN25_VL["rope_scaling"])
    assert not of_class(findings(version, QWEN25_VL, same), "runtime")
