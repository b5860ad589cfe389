from __future__ import annotations

import pytest

from preflight.examining import findings, of_class
from preflight.published import (
    DEEPSEEK_V3,
    KIMI_K25,
    KIMI_MHA,
    KIMI_MLA,
    LLAMA31_8B,
    LLAMA31_YUHUILI,
    QWEN3_4B,
    QWEN3_SPECFORGE,
    Config,
    with_settings,
)
from vllm_eagle3_patches.preflight import Severity


@pytest.mark.parametrize("version", ["0.18.0", "0.32.0"])
@pytest.mark.parametrize(
    ("drafter", "args", "warned"),
    [
        (KIMI_MHA, "--kv-cache-dtype fp8", True),
        (KIMI_MHA, "--kv-cache-dtype auto", False),
        (KIMI_MHA, "", False),
        (KIMI_MLA, "--kv-cache-dtype fp8", False),
    ],
)
def test_inherited_dtype(version: str, drafter: Config, args: str, warned: bool) -> None:
    found = of_class(findings(version, KIMI_K25, drafter, args=args), "kv-cache")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])
    if warned:
        assert ("speculative config" in found[0].fix) is (version == "0.32.0")


@pytest.mark.parametrize("version", ["0.10.2", "0.11.0"])
def test_mla_target_with_ordinary_drafter(version: str) -> None:
    drafter = with_settings(KIMI_MHA, vocab_size=129280)
    found = of_class(findings(version, DEEPSEEK_V3, drafter), "kv-cache")
    assert [f.severity for f in found] == ([Severity.ERROR] if version == "0.10.2" else [])
    if found:
        assert "576 values" in found[0].detail


def test_same_page_size_in_the_oldest_versions() -> None:
    assert not of_class(findings("0.10.2", LLAMA31_8B, LLAMA31_YUHUILI), "kv-cache")
    other = with_settings(LLAMA31_YUHUILI, num_key_value_heads=32)
    (found,) = of_class(findings("0.10.2", LLAMA31_8B, other), "kv-cache")
    assert found.severity is Severity.ERROR


def test_mla_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_MLA_DISABLE", "1")
    drafter = with_settings(KIMI_MHA, vocab_size=129280)
    assert not of_class(findings("0.10.2", DEEPSEEK_V3, drafter), "kv-cache")


@pytest.mark.parametrize(
    ("kinds", "warned"),
    [
        (["full_attention", "sliding_attention"], True),
        (["full_attention", "full_attention"], False),
    ],
)
def test_mixed_layers(kinds: list[str], warned: bool) -> None:
    drafter = with_settings(QWEN3_SPECFORGE, num_hidden_layers=2, layer_types=kinds)
    found = of_class(findings("0.18.0", QWEN3_4B, drafter), "kv-cache")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])
