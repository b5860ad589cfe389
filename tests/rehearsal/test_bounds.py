"""Fields that a twin keeps cannot make it large."""

from __future__ import annotations

from typing import Any

import pytest
from preflight import published

from rehearsal import models
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.preflight.safetensors import Tensor
from vllm_eagle3_patches.rehearsal import prepare

LLAMA, DRAFTER = models.LLAMA31_8B, published.LLAMA31_YUHUILI
DEEPSEEK, KIMI = models.DEEPSEEK_V3, models.KIMI_K25
PATHS = ("/t/config.json", "/d/config.json")


def refused(
    target: dict[str, Any], drafter: dict[str, Any] = DRAFTER, tensors: Any = None
) -> RefusedError:
    with pytest.raises(RefusedError) as found:
        prepare.twins(target, drafter, tensors, paths=PATHS)
    assert found.value.next
    return found.value


@pytest.mark.parametrize(
    ("target", "changed", "said"),
    [
        (LLAMA, {"vocab_size": 2**21}, "8.1 GiB of weights, most of them by `vocab_size` 2097152"),
        (LLAMA, {"head_dim": 10**5}, "`head_dim` would be 100000 in the twin"),
        (LLAMA, {"seq_length": 10**9}, "`seq_length` would be 1000000000"),
        (LLAMA, {"num_query_tokens": 10**9}, "`num_query_tokens` would be 1000000000"),
        (DEEPSEEK, {"kv_lora_rank": 10**6}, "`kv_lora_rank` would be 1000000"),
        (DEEPSEEK, {"qk_nope_head_dim": 10**9}, "`qk_nope_head_dim` would be 1000000000"),
        (DEEPSEEK, {"n_routed_experts": 10**6, "num_experts_per_tok": 20000}, "`n_routed_experts`"),
        (DEEPSEEK, {"n_shared_experts": 30000}, "by `num_hidden_layers` 7, `n_shared_experts`"),
        (LLAMA, {"max_position_embeddings": 10**9}, "`max_position_embeddings` would be"),
        (LLAMA, {"rope_scaling": {"rope_type": "linear", "factor": 1e9}}, "factor` is 1000000000"),
        (LLAMA, {"rope_scaling": {"rope_type": "yarn", "factor": float("inf")}}, "is Infinity"),
        (LLAMA, {"conv_kernel_size": 10**8}, "`conv_kernel_size` would be 100000000"),
        (LLAMA, {"x": [{"y": {"mid_dim": 10**8}}]}, "`x.0.y.mid_dim` would be 100000000"),
        (LLAMA, {"perceiver": {"hidden_size": 9000, "num_layers": 99}}, "`num_layers` 99"),
    ],
)
def test_a_field_of_the_target(target: dict[str, Any], changed: dict[str, Any], said: str) -> None:
    error = refused({**target, **changed})
    assert said in error.what
    assert error.where == PATHS[0]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"image_size": 10**9}, "`vision_config.image_size` would be 1000000000"),
        ({"patch_size": 30000}, "by `patch_size` 30000"),
        ({"mm_hidden_size": 10**9}, "`vision_config.mm_hidden_size` would be 1000000000"),
        ({"init_pos_emb_height": 10**9}, "`vision_config.init_pos_emb_height` would be"),
        ({"num_positions": 2**24}, "by `num_positions` 16777216"),
    ],
)
def test_a_field_of_the_tower(changed: dict[str, Any], said: str) -> None:
    tower = {**KIMI["vision_config"], **changed}
    assert said in refused({**KIMI, "vision_config": tower}, published.KIMI_MHA).what


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"draft_vocab_size": 10**15}, "`draft_vocab_size` is 1000000000000000"),
        ({"draft_vocab_size": 2**21}, "by `draft_vocab_size` 2097152, `hidden_size` 512"),
        ({"num_hidden_layers": 1000}, "by `num_hidden_layers` 1000"),
        ({"target_hidden_size": 2**20}, "`target_hidden_size` would be 131072"),
        ({"head_dim": 10**5}, "`head_dim` would be 100000"),
    ],
)
def test_a_field_of_the_drafter(changed: dict[str, Any], said: str) -> None:
    error = refused(LLAMA, {**DRAFTER, **changed})
    assert said in error.what
    assert error.where == PATHS[1]


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ((10**6, 10**4), "by `odd` 1000000, `odd` 10000"),
        ((-3, 2), "`odd` has the shape [-3, 2]"),
        ((10**400,), "`odd` has the shape [1000"),
        ((1,) * 9, "`odd` has the shape [1, 1"),
    ],
)
def test_a_tensor_of_the_drafters_files(shape: tuple[int, ...], said: str) -> None:
    assert said in refused(LLAMA, tensors={"odd": Tensor(shape, "BF16")}).what


def test_more_aux_layers_than_the_twin_has() -> None:
    raw = {**DRAFTER, "eagle_aux_hidden_state_layer_ids": [2, 5, 8, 11, 14, 17, 20]}
    error = refused(LLAMA, raw)
    assert "names 7 layers between the first and the last" in error.what
    assert error.where == PATHS[1]


def test_a_target_without_heads_is_told_what_is_missing() -> None:
    error = refused(published.QWEN25_VL)
    assert "by `vocab_size` 152064, `hidden_size` 3584" in error.what
    assert (error.next or "").startswith("name num_attention_heads")


def test_gpus_share_the_weights() -> None:
    target = {**models.COMMAND_R, "vocab_size": 2**20}
    with pytest.raises(RefusedError, match="GiB"):
        prepare.twins(target, models.llama_drafter(target), None)
    prepare.twins(target, models.llama_drafter(target), None, 4)


def test_what_vllm_does_not_build_is_not_counted() -> None:
    talker = {"text_config": {"hidden_size": 9000, "num_hidden_layers": 99}}
    prepare.twins({**LLAMA, "talker_config": talker}, DRAFTER, None)
