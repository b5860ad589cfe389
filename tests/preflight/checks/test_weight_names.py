from __future__ import annotations

import pytest

from preflight.examining import findings, matching, of_class
from preflight.published import (
    GPT_OSS_120B,
    GPT_OSS_SHORT,
    GPT_OSS_V3,
    KIMI_K25,
    KIMI_MHA,
    KIMI_MLA_31,
    LLAMA31_8B,
    QWEN3_4B,
    QWEN3_30B,
    QWEN3_31,
    QWEN3_SPECFORGE,
    SPECULATORS,
    Shapes,
    tensors,
    with_settings,
)
from vllm_eagle3_patches.preflight import Severity

NORMS: Shapes = {
    "layers.0.self_attn.q_norm.weight": (128,),
    "layers.0.self_attn.k_norm.weight": (128,),
}


@pytest.mark.parametrize(("version", "kind", "error"), [
    ("0.20.2", "qwen3", True),
    ("0.22.1", "qwen3", True),
    ("0.24.0", "qwen3", False),
    ("0.24.0", "llama", True),
])  # fmt: skip
def test_qwen3_norms_need_the_qwen3_class(version: str, kind: str, error: bool) -> None:
    """vLLM PR 43132: `KeyError: 'layers.0.self_attn.k_norm.weight'`."""
    layer = {**SPECULATORS["transformer_layer_config"], "model_type": kind}
    drafter = with_settings(SPECULATORS, transformer_layer_config=layer)
    shapes = {**tensors(drafter, LLAMA31_8B), **NORMS}
    found = matching(findings(version, LLAMA31_8B, drafter, shapes), "drafter", "k_norm")
    assert [f.severity for f in found] == ([Severity.ERROR] if error else [])


@pytest.mark.parametrize(("version", "error"), [("0.17.1", True), ("0.18.0", False)])
def test_norm_before_fc_tensor(version: str, error: bool) -> None:
    found = matching(findings(version, GPT_OSS_120B, GPT_OSS_V3), "drafter", "input_norm")
    assert [f.severity for f in found] == ([Severity.ERROR] if error else [])


@pytest.mark.parametrize(("version", "error"), [("0.21.0", True), ("0.22.1", False)])
def test_fc_norm_tensors(version: str, error: bool) -> None:
    for target, drafter in ((QWEN3_30B, QWEN3_31), (KIMI_K25, KIMI_MLA_31)):
        found = matching(findings(version, target, drafter), "drafter", "fc_norm")
        assert [f.severity for f in found] == ([Severity.ERROR] if error else [])


@pytest.mark.parametrize("set_", [True, False])
def test_fc_norm_tensors_the_config_does_not_name(set_: bool) -> None:
    shapes = tensors(QWEN3_31, QWEN3_30B)
    drafter = QWEN3_31 if set_ else with_settings(QWEN3_31, fc_norm=None)
    found = matching(findings("0.24.0", QWEN3_30B, drafter, shapes), "drafter", "fc_norm")
    assert [f.severity for f in found] == ([] if set_ else [Severity.ERROR])
    if not set_:
        assert '"fc_norm": true' in found[0].fix


@pytest.mark.parametrize("prefix", ["", "model."])
def test_prefixed_names(prefix: str) -> None:
    shapes = {
        name if name == "lm_head.weight" else prefix + name: shape
        for name, shape in tensors(KIMI_MHA, KIMI_K25).items()
    }
    found = of_class(findings("0.18.0", KIMI_K25, KIMI_MHA, shapes), "drafter")
    assert [f.severity for f in found] == ([Severity.ERROR] if prefix else [])


@pytest.mark.parametrize("version", ["0.10.2", "0.18.0"])
def test_second_layer(version: str) -> None:
    drafter = with_settings(QWEN3_SPECFORGE, num_hidden_layers=2)
    shapes = tensors(drafter, QWEN3_4B)
    second = {
        name.replace("midlayer.", "layers.1."): shape
        for name, shape in shapes.items()
        if "midlayer" in name
    }
    found = matching(
        findings(version, QWEN3_4B, drafter, {**shapes, **second}), "drafter", "layers.1"
    )
    # To 0.10.2 the class builds one layer, whatever the config says.
    assert [f.severity for f in found] == ([Severity.ERROR] if version == "0.10.2" else [])


@pytest.mark.parametrize("gone", ["fc.weight", "midlayer.self_attn.o_proj.weight"])
def test_missing_tensor(gone: str) -> None:
    shapes = tensors(KIMI_MHA, KIMI_K25)
    assert not of_class(findings("0.18.0", KIMI_K25, KIMI_MHA, shapes), "drafter-missing")
    del shapes[gone]
    (found,) = of_class(findings("0.18.0", KIMI_K25, KIMI_MHA, shapes), "drafter-missing")
    assert found.severity is Severity.ERROR
    assert gone.replace("midlayer", "layers.0").removesuffix(".weight") in found.detail


@pytest.mark.parametrize(("version", "error"), [("0.11.2", True), ("0.12.0", False)])
def test_head_without_aux_states_has_no_fc(version: str, error: bool) -> None:
    shapes = tensors(GPT_OSS_SHORT, GPT_OSS_120B)
    del shapes["fc.weight"]
    found = of_class(findings(version, GPT_OSS_120B, GPT_OSS_SHORT, shapes), "drafter-missing")
    assert [f.severity for f in found] == ([Severity.ERROR] if error else [])


def test_rotary_buffers_and_scales_have_a_home() -> None:
    shapes = {
        **tensors(KIMI_MHA, KIMI_K25),
        "midlayer.self_attn.rotary_emb.inv_freq": (64,),
        "midlayer.self_attn.q_proj.weight_scale": (1,),
        "midlayer.self_attn.k_scale": (1,),
    }
    assert not of_class(findings("0.18.0", KIMI_K25, KIMI_MHA, shapes), "drafter")


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("version", "follows"), [("0.15.1", False), ("0.16.0", True)])
def test_bias_of_the_attention(version: str, follows: bool, bias: bool) -> None:
    drafter = with_settings(QWEN3_SPECFORGE, attention_bias=bias)
    shapes = tensors(drafter, QWEN3_4B)
    if bias:
        shapes["midlayer.self_attn.q_proj.bias"] = (2560,)
    found = matching(findings(version, QWEN3_4B, drafter, shapes), "drafter", "q_proj.bias")
    assert [f.severity for f in found] == ([Severity.ERROR] if bias and not follows else [])


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("version", ["0.18.0", "0.32.0"])
def test_norm_before_fc_tensor_the_config_does_not_name(version: str, named: bool) -> None:
    shapes = tensors(GPT_OSS_V3, GPT_OSS_120B)
    drafter = GPT_OSS_V3 if named else with_settings(GPT_OSS_V3, norm_before_fc=None)
    found = matching(
        findings(version, GPT_OSS_120B, drafter, shapes), "ignored-setting", "input_norm.weight"
    )
    assert [f.severity for f in found] == ([] if named else [Severity.WARNING])
