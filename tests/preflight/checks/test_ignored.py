from __future__ import annotations

import pytest

from preflight.examining import findings, matching, of_class
from preflight.published import (
    GPT_OSS_120B,
    GPT_OSS_NVIDIA,
    GPT_OSS_SHORT,
    KIMI_K25,
    KIMI_MLA,
    KIMI_MLA_31,
    LLAMA31_8B,
    QWEN3_4B,
    QWEN3_30B,
    QWEN3_31,
    QWEN3_SPECFORGE,
    SPECULATORS,
    Config,
    tensors,
    with_settings,
)
from vllm_eagle3_patches.preflight import Severity


@pytest.mark.parametrize(
    ("version", "model", "drafter", "ignored"),
    [
        ("0.17.1", QWEN3_4B, with_settings(QWEN3_SPECFORGE, norm_before_fc=True), True),
        ("0.18.0", QWEN3_4B, with_settings(QWEN3_SPECFORGE, norm_before_fc=True), False),
        ("0.18.0", LLAMA31_8B, with_settings(SPECULATORS, norm_before_fc=True), True),
        ("0.19.1", LLAMA31_8B, with_settings(SPECULATORS, norm_before_fc=True), False),
        ("0.18.0", KIMI_K25, with_settings(KIMI_MLA, norm_before_fc=True), True),
        ("0.32.0", KIMI_K25, with_settings(KIMI_MLA, norm_before_fc=True), True),
    ],
)
def test_norm_before_fc(version: str, model: Config, drafter: Config, ignored: bool) -> None:
    shapes = tensors(with_settings(drafter, norm_before_fc=None), model)
    found = matching(
        findings(version, model, drafter, shapes), "ignored-setting", "`norm_before_fc: True`"
    )
    assert [f.severity for f in found] == ([Severity.WARNING] if ignored else [])


@pytest.mark.parametrize("key", ["norm_output", "fc_norm"])
@pytest.mark.parametrize(
    ("version", "model", "drafter", "ignored"),
    [
        ("0.21.0", QWEN3_30B, QWEN3_31, True),
        ("0.22.1", QWEN3_30B, QWEN3_31, False),
        ("0.24.0", LLAMA31_8B, with_settings(SPECULATORS, norm_output=True, fc_norm=True), True),
        ("0.27.1", LLAMA31_8B, with_settings(SPECULATORS, norm_output=True, fc_norm=True), False),
        ("0.24.0", KIMI_K25, KIMI_MLA_31, False),
    ],
)
def test_eagle_31(key: str, version: str, model: Config, drafter: Config, ignored: bool) -> None:
    found = matching(findings(version, model, drafter), "ignored-setting", f"`{key}: True`")
    assert [f.severity for f in found] == ([Severity.WARNING] if ignored else [])


@pytest.mark.parametrize(("version", "ignored"), [("0.22.1", True), ("0.24.0", False)])
def test_fc_norm_made_and_not_applied(version: str, ignored: bool) -> None:
    """vLLM PR 43482."""
    found = of_class(findings(version, KIMI_K25, KIMI_MLA_31), "ignored-setting")
    assert [f.severity for f in found] == ([Severity.WARNING] if ignored else [])
    if ignored:
        assert "combine_hidden_states does not apply them" in found[0].detail


@pytest.mark.parametrize(("version", "ignored"), [("0.11.2", True), ("0.12.0", False)])
def test_head_without_aux_states(version: str, ignored: bool) -> None:
    found = matching(
        findings(version, GPT_OSS_120B, GPT_OSS_SHORT),
        "ignored-setting",
        "`eagle_config.use_aux_hidden_state: False`",
    )
    assert [f.severity for f in found] == ([Severity.WARNING] if ignored else [])


@pytest.mark.parametrize("version", ["0.11.1", "0.18.0", "0.32.0"])
def test_what_model_optimizer_always_writes_is_not_reported(version: str) -> None:
    assert not of_class(findings(version, GPT_OSS_120B, GPT_OSS_NVIDIA), "ignored-setting")


def test_what_vllm_does_otherwise_is_reported() -> None:
    nested = {**GPT_OSS_NVIDIA["eagle_config"], "use_mtp_layernorm": True}
    drafter = with_settings(GPT_OSS_NVIDIA, eagle_config=nested)
    (found,) = of_class(findings("0.32.0", GPT_OSS_120B, drafter), "ignored-setting")
    assert "`eagle_config.use_mtp_layernorm: True`" in found.detail


@pytest.mark.parametrize("value", ["linear", None])
def test_key_nobody_knows(value: str | None) -> None:
    drafter = with_settings(QWEN3_SPECFORGE, fusion_of_states=value)
    found = of_class(findings("0.32.0", QWEN3_4B, drafter), "ignored-setting")
    assert [f.severity for f in found] == ([Severity.WARNING] if value else [])


@pytest.mark.parametrize(("version", "ignored"), [("0.10.2", True), ("0.32.0", False)])
def test_rope_parameters_of_transformers_5(version: str, ignored: bool) -> None:
    drafter = with_settings(
        QWEN3_SPECFORGE,
        rope_theta=None,
        rope_parameters={"rope_theta": 1e6, "rope_type": "default"},
    )
    found = matching(findings(version, QWEN3_4B, drafter), "ignored-setting", "rope_parameters")
    assert [f.severity for f in found] == ([Severity.WARNING] if ignored else [])


@pytest.mark.parametrize(
    ("version", "architecture", "kind", "ignored"),
    [
        ("0.24.0", "Eagle3Qwen3ForCausalLM", "sliding_attention", True),
        ("0.24.0", "Eagle3Qwen3ForCausalLM", "full_attention", False),
        ("0.24.0", "LlamaForCausalLMEagle3", "sliding_attention", False),
        ("0.32.0", "Eagle3Qwen3ForCausalLM", "sliding_attention", False),
    ],
)
def test_kinds_of_layers(version: str, architecture: str, kind: str, ignored: bool) -> None:
    """vLLM PR 50169 and 53827: the drafter's own sliding window."""
    drafter = with_settings(QWEN3_SPECFORGE, architectures=[architecture], layer_types=[kind])
    found = matching(findings(version, QWEN3_4B, drafter), "ignored-setting", "layer_types")
    assert [f.severity for f in found] == ([Severity.WARNING] if ignored else [])
