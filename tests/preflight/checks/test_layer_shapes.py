from __future__ import annotations

import pytest

from preflight.examining import findings, matching, of_class
from preflight.folders import write_model, write_tensors
from preflight.published import (
    KIMI_K25,
    KIMI_MLA,
    QWEN3_4B,
    QWEN3_SPECFORGE,
    tensors,
    with_settings,
)
from vllm_eagle3_patches.preflight import Severity
from vllm_eagle3_patches.preflight.weights import look


@pytest.mark.parametrize("head_dim", [80, 128])
def test_head_dim(head_dim: int) -> None:
    shapes = tensors(QWEN3_SPECFORGE, QWEN3_4B)
    drafter = with_settings(QWEN3_SPECFORGE, head_dim=head_dim)
    found = matching(findings("0.18.0", QWEN3_4B, drafter, shapes), "aux-shape", "q_proj")
    assert [f.severity for f in found] == ([] if head_dim == 80 else [Severity.ERROR])
    if found:
        assert "[2560, 5120], the config makes it [4096, 5120]" in found[0].detail


def test_head_dim_that_is_not_given() -> None:
    """2560 / 32 heads is the 80 of the published config."""
    drafter = with_settings(QWEN3_SPECFORGE, head_dim=None)
    assert not of_class(findings("0.18.0", QWEN3_4B, drafter), "aux-shape")


@pytest.mark.parametrize(
    ("setting", "value", "module"),
    [
        ("num_key_value_heads", 4, "k_proj"),
        ("intermediate_size", 4096, "gate_proj"),
        ("num_attention_heads", 16, "q_proj"),
    ],
)
def test_other_sizes(setting: str, value: int, module: str) -> None:
    shapes = tensors(QWEN3_SPECFORGE, QWEN3_4B)
    drafter = with_settings(QWEN3_SPECFORGE, **{setting: value})
    found = matching(findings("0.18.0", QWEN3_4B, drafter, shapes), "aux-shape", module)
    assert [f.severity for f in found] == [Severity.ERROR]


@pytest.mark.parametrize("rank", [512, 256])
def test_mla(rank: int) -> None:
    shapes = tensors(KIMI_MLA, KIMI_K25)
    drafter = with_settings(KIMI_MLA, kv_lora_rank=rank)
    found = matching(findings("0.18.0", KIMI_K25, drafter, shapes), "aux-shape", "kv_a_proj")
    assert [f.severity for f in found] == ([] if rank == 512 else [Severity.ERROR])


def test_packed_weights_are_not_compared(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("packed")
    shapes = tensors(QWEN3_SPECFORGE, QWEN3_4B)
    name = "midlayer.mlp.down_proj.weight"
    shapes[name] = (2560, 9728 // 2)
    write_model(folder, QWEN3_SPECFORGE)
    write_tensors(folder / "model.safetensors", shapes, {name: "U8"})
    tensor = (look(folder).tensors or {})[name]
    assert tensor.dtype == "U8"
