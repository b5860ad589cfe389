"""The twin of a config: small, and of the same kind."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehearsal import models
from vllm_eagle3_patches.preflight.facts import text_config
from vllm_eagle3_patches.rehearsal import layers, rules

# Head sizes that vLLM's CPU attention has kernels for (`CPUAttentionBackend`, 0.32.0).
CPU_HEAD_SIZES = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
KEPT = (
    "head_dim", "hidden_act", "kv_lora_rank", "logit_scale", "max_position_embeddings",
    "model_type", "moe_layer_freq", "n_group", "n_shared_experts", "norm_topk_prob",
    "num_experts_per_tok", "partial_rotary_factor", "q_lora_rank", "qk_nope_head_dim",
    "qk_rope_head_dim", "query_pre_attn_scalar", "rms_norm_eps", "rope_scaling", "rope_theta",
    "routed_scaling_factor", "scoring_func", "sliding_window", "tie_word_embeddings",
    "topk_group", "topk_method", "v_head_dim", "vocab_size", "first_k_dense_replace",
)  # fmt: skip

every_model = pytest.mark.parametrize("name", models.MODELS)


def parameters(config: dict[str, Any]) -> int:
    """About how many a language model of that config has."""
    hidden, depth = config["hidden_size"], config["num_hidden_layers"]
    experts = rules.number(config, rules.EXPERTS) or 1
    middle = config.get("moe_intermediate_size") or config["intermediate_size"]
    return depth * (4 * hidden**2 + 3 * experts * hidden * middle)


@every_model
def test_what_decides_the_code_is_kept(name: str) -> None:
    twin = rules.target(models.MODELS[name])
    for key in KEPT:
        assert twin.text.get(key) == twin.real.get(key), key
    assert twin.config["architectures"] == models.MODELS[name]["architectures"]


@every_model
def test_ids_of_tokens_are_kept(name: str) -> None:
    def ids(config: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in config.items() if "token" in k}

    assert ids(rules.target(models.MODELS[name]).config) == ids(models.MODELS[name])


@every_model
def test_a_thousandth_of_the_size(name: str) -> None:
    twin = rules.target(models.MODELS[name])
    assert parameters(dict(twin.text)) * 300 < parameters(dict(twin.real))


@every_model
def test_the_grouping_of_heads_stays(name: str) -> None:
    twin = rules.target(models.MODELS[name])
    (before, kv_before), (after, kv_after) = (
        (c["num_attention_heads"], c["num_key_value_heads"]) for c in (twin.real, twin.text)
    )
    assert after % kv_after == 0
    assert (before == kv_before) == (after == kv_after)
    assert kv_after > 1


@every_model
def test_head_sizes_are_the_real_ones(name: str) -> None:
    twin = rules.target(models.MODELS[name])
    if "head_dim" in twin.real or "kv_lora_rank" in twin.real:
        return
    sizes = [c["hidden_size"] // c["num_attention_heads"] for c in (twin.real, twin.text)]
    assert sizes[0] == sizes[1]
    assert twin.text["hidden_size"] % twin.text["num_attention_heads"] == 0
    assert sizes[1] in CPU_HEAD_SIZES


@every_model
def test_routing_has_room(name: str) -> None:
    text = rules.target(models.MODELS[name]).text
    experts = rules.number(text, rules.EXPERTS)
    if experts is None:
        return
    groups, top = text.get("n_group", 1), text["num_experts_per_tok"]
    assert experts > top
    assert experts % groups == 0
    assert experts // groups >= 2
    assert text.get("topk_group", groups) * experts // groups >= top


def test_deepseek_v3_in_numbers() -> None:
    twin = rules.target(models.DEEPSEEK_V3)
    assert {k: v for k, v in twin.text.items() if v != twin.real[k]} == {
        "hidden_size": 256,
        "intermediate_size": 256,
        "moe_intermediate_size": 128,
        "n_routed_experts": 16,
        "num_attention_heads": 4,
        "num_hidden_layers": 7,
        "num_key_value_heads": 4,
        "num_nextn_predict_layers": 0,
    }
    assert twin.notes == ("quantization_config", "auto_map")


def test_a_tower_shrinks_with_the_text_model() -> None:
    kimi = rules.target(models.KIMI_K25).config
    assert kimi["text_config"]["hidden_size"] == 256
    vision = kimi["vision_config"]
    assert vision["text_hidden_size"] == 256
    assert (vision["vt_hidden_size"], vision["mm_hidden_size"]) == (144, 144)
    assert (vision["vt_num_hidden_layers"], vision["num_hidden_layers"]) == (2, 2)
    assert vision["patch_size"] == 14
    qwen = rules.target(models.QWEN25_VL_7B).config
    assert qwen["vision_config"]["out_hidden_size"] == qwen["hidden_size"] == 512
    assert qwen["vision_config"]["hidden_size"] == 160
    assert qwen["vision_config"]["fullatt_block_indexes"] == [1]


def test_a_tower_of_stages_shrinks_in_each() -> None:
    tower = {"num_heads": [4, 8], "depth": [1, 9], "ffn_dim": [64, None, 900], "dim": None}
    made = rules.target({**models.LLAMA31_8B, "vision_config": tower}).config["vision_config"]
    assert made == {"num_heads": [2, 2], "depth": [1, 2], "ffn_dim": [64, None, 128], "dim": None}


def test_a_tower_beside_the_text_part_shrinks_wherever_that_is() -> None:
    inner = copy.deepcopy(models.GEMMA3_27B)
    made = rules.target({"model_type": "x", "thinker_config": inner}).config["thinker_config"]
    assert made == rules.target(models.GEMMA3_27B).config


def test_a_wrapper_that_repeats_sizes_repeats_the_twins() -> None:
    config = copy.deepcopy(models.GEMMA3_27B) | {"hidden_size": 5376, "num_hidden_layers": 62}
    twin = rules.target(config).config
    assert twin["hidden_size"] == twin["text_config"]["hidden_size"]
    assert twin["num_hidden_layers"] == 7


def test_the_real_config_is_not_touched() -> None:
    before = copy.deepcopy(models.KIMI_K25)
    rules.target(models.KIMI_K25)
    assert before == models.KIMI_K25


@pytest.mark.parametrize("parallel", [1, 2, 4, 8])
@every_model
def test_heads_divide_over_the_gpus(name: str, parallel: int) -> None:
    text = rules.target(models.MODELS[name], parallel).text
    assert text["num_attention_heads"] % parallel == 0
    kv = text["num_key_value_heads"]
    assert kv % parallel == 0 or parallel % kv == 0


@every_model
def test_the_twin_of_a_twin_is_itself(name: str) -> None:
    once = rules.target(models.MODELS[name]).config
    assert rules.target(once).config == once


@given(
    heads=st.integers(1, 128),
    group=st.integers(1, 16),
    size=st.sampled_from((32, 64, 80, 96, 128, 256)),
)
def test_implicit_head_sizes_survive(heads: int, group: int, size: int) -> None:
    config = {
        "hidden_size": heads * group * size,
        "num_attention_heads": heads * group,
        "num_key_value_heads": heads,
        "num_hidden_layers": 40,
    }
    text = rules.target(config).text
    assert text["hidden_size"] == text["num_attention_heads"] * size
    assert text["num_attention_heads"] % text["num_key_value_heads"] == 0
    assert text["hidden_size"] <= config["hidden_size"]


@given(
    groups=st.sampled_from((1, 2, 4, 8)),
    each=st.integers(2, 64),
    data=st.data(),
)
def test_any_routing_has_room(groups: int, each: int, data: st.DataObject) -> None:
    chosen = data.draw(st.integers(1, groups))
    top = data.draw(st.integers(1, chosen * each))
    config = {"n_routed_experts": groups * each, "n_group": groups, "topk_group": chosen,
              "num_experts_per_tok": top}  # fmt: skip
    few = rules.experts(config)
    assert few is not None
    assert few <= groups * each
    assert few % groups == 0
    assert chosen * few // groups >= top


def test_text_part_is_the_one_vllm_takes() -> None:
    for config in models.MODELS.values():
        twin = rules.target(config)
        assert twin.real is text_config(config)
        assert twin.text is text_config(twin.config)
        assert layers.count(twin.text) == 7
