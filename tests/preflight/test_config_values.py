"""Values that a setting cannot have, each beside the near twin that is in order."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.examining import findings
from preflight.published import (
    KIMI_K25,
    KIMI_MLA_31,
    LLAMA31_8B,
    LLAMA31_YUHUILI,
    Config,
    tensors,
)
from vllm_eagle3_patches.preflight import Finding

VERSIONS = ("0.11.2", "0.17.1", "0.32.0")


def _with(config: Config, **settings: Any) -> Config:
    return {**config, **settings}  # a null stays


def examined(version: str, model: Config, drafter: Config) -> tuple[Finding, ...]:
    return findings(version, model, drafter, tensors(LLAMA31_YUHUILI, LLAMA31_8B))


def said(found: tuple[Finding, ...], key: str) -> list[str]:
    return [f.severity.value for f in found if f"`{key}: " in f.detail or f"(`{key}`)" in f.detail]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "x"),
        ("hidden_size", "4096"),
        ("hidden_size", True),
        ("hidden_size", None),
        ("vocab_size", None),
        ("vocab_size", 1e30),
        ("vocab_size", -1),
        ("intermediate_size", [14336]),
        ("num_attention_heads", 0),
        ("num_attention_heads", 32.0),
        ("num_key_value_heads", "8"),
        ("head_dim", 0),
        ("head_dim", False),
        ("draft_vocab_size", "32000"),
        ("max_position_embeddings", "2048"),
        ("rms_norm_eps", "1e-05"),
        ("rope_theta", "500000"),
        ("rope_scaling", "x"),
        ("rope_scaling", {"rope_type": "float99"}),
        ("rope_scaling", {"rope_type": "yarn", "factor": "4"}),
        ("torch_dtype", "float99"),
    ],
)
def test_what_surely_stops_the_drafter_is_an_error(version: str, key: str, value: Any) -> None:
    drafter = _with(LLAMA31_YUHUILI, **{key: value})
    found = examined(version, LLAMA31_8B, drafter)
    keys = {key, f"{key}.factor"}
    assert [s for k in keys for s in said(found, k)] == ["error"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_attention_heads", True),
        ("max_position_embeddings", None),
        ("max_position_embeddings", 1e30),
        ("rms_norm_eps", None),
        ("rope_scaling", {"factor": "x"}),
        ("rope_scaling", ""),
        ("torch_dtype", 16),
    ],
)
def test_what_a_version_may_pass_over_is_a_warning(key: str, value: Any) -> None:
    found = examined("0.17.1", LLAMA31_8B, _with(LLAMA31_YUHUILI, **{key: value}))
    assert [s for k in (key, f"{key}.factor") for s in said(found, k)] == ["warning"]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "settings",
    [
        {"head_dim": None, "num_key_value_heads": 8, "rope_scaling": None, "torch_dtype": None},
        {"torch_dtype": "torch.bfloat16", "dtype": "half", "target_hidden_size": None},
        {"rope_scaling": {"type": "linear", "factor": 4}},
        {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
        {"rope_parameters": {"rope_theta": 500000.0, "rope_type": "default"}},
        {"kv_lora_rank": None, "q_lora_rank": None},
    ],
)
def test_values_in_order_are_not_told(version: str, settings: Config) -> None:
    found = examined(version, LLAMA31_8B, _with(LLAMA31_YUHUILI, **settings))
    assert [f for f in found if "it has to be" in f.detail or "none that vLLM" in f.detail] == []


def test_settings_that_an_mla_drafter_does_not_read_are_no_error() -> None:
    drafter = _with(
        KIMI_MLA_31, head_dim=0, num_key_value_heads="x", rope_scaling={"type": "own", "factor": 1}
    )
    found = findings("0.32.0", KIMI_K25, drafter, tensors(KIMI_MLA_31, KIMI_K25))
    assert said(found, "head_dim") == said(found, "num_key_value_heads") == ["warning"]
    assert said(found, "rope_scaling") == ["warning"]


@pytest.mark.parametrize(
    ("key", "value", "severity"),
    [
        ("hidden_size", "x", "error"),
        ("num_hidden_layers", 32.0, "error"),
        ("num_hidden_layers", 0, "error"),
        ("vocab_size", None, "warning"),
        ("rope_scaling", "x", "error"),
        ("torch_dtype", "float99", "error"),
        ("max_position_embeddings", "many", "error"),
    ],
)
def test_the_target_is_looked_at_too(key: str, value: Any, severity: str) -> None:
    found = examined("0.18.0", _with(LLAMA31_8B, **{key: value}), LLAMA31_YUHUILI)
    told = [f for f in found if "the target's config.json" in f.detail and f"`{key}" in f.detail]
    assert [f.severity.value for f in told] == [severity]


def test_a_target_with_a_size_for_each_layer() -> None:
    model = _with(LLAMA31_8B, num_attention_heads=[32] * 32, intermediate_size=[1] * 32)
    assert [f for f in examined("0.18.0", model, LLAMA31_YUHUILI) if "it has to" in f.detail] == []


@pytest.mark.parametrize("count", [2**40, 10**400])
@pytest.mark.parametrize("key", ["num_hidden_layers", "draft_vocab_size", "vocab_size"])
def test_wild_numbers_cost_neither_time_nor_memory(key: str, count: int) -> None:
    for version in ("0.10.1.1", "0.18.0", "0.32.0"):
        assert examined(version, LLAMA31_8B, _with(LLAMA31_YUHUILI, **{key: count}))
        assert examined(version, _with(LLAMA31_8B, **{key: count}), LLAMA31_YUHUILI)
