"""The drafter's twin fits its target's exactly where the real one fits the real target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from preflight import published

from rehearsal import models
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.preflight.safetensors import Tensor
from vllm_eagle3_patches.rehearsal import drafter, rules
from vllm_eagle3_patches.rehearsal.drafter import DrafterTwin

KIMI = rules.target(models.KIMI_K25)
LLAMA = rules.target(models.LLAMA31_8B)
PAIRS = {
    "Kimi, MHA": (models.KIMI_K25, published.KIMI_MHA),
    "Kimi, MLA": (models.KIMI_K25, published.KIMI_MLA),
    "Kimi, 3.1": (models.KIMI_K25, published.KIMI_MLA_31),
    "Llama 3.1, yuhuili": (models.LLAMA31_8B, published.LLAMA31_YUHUILI),
    "Llama 3.1, speculators": (models.LLAMA31_8B, published.SPECULATORS),
    "Llama 3.3, narrower": (published.LLAMA33_70B, published.LLAMA33_YUHUILI),
    "Llama 3.3, ModelOpt": (published.LLAMA33_70B, published.LLAMA33_MODELOPT),
    "Qwen3 MoE, 3.1": (models.QWEN3_30B_A3B, published.QWEN3_31),
    "gpt-oss": (published.GPT_OSS_120B | {"intermediate_size": 2880}, published.GPT_OSS_NVIDIA),
    "gpt-oss, norm before fc": (
        published.GPT_OSS_120B | {"intermediate_size": 2880},
        published.GPT_OSS_V3,
    ),
}
every_pair = pytest.mark.parametrize("name", PAIRS)


def tensors(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    return {name: Tensor(shape, "BF16") for name, shape in shapes.items()}


def twin(name: str, *, files: bool, **changed: tuple[int, ...]) -> DrafterTwin:
    target, raw = PAIRS[name]
    shapes = published.tensors(raw, target, states=drafter.states(raw)) | changed
    return drafter.drafter(raw, rules.target(target), tensors(shapes) if files else None)


@every_pair
def test_tensors_fit_the_twins_config_as_the_real_ones_fit_theirs(name: str) -> None:
    """`published.tensors` says what shapes a config asks for, independently of the package."""
    target, _ = PAIRS[name]
    made = twin(name, files=True)
    small = rules.target(target).config
    expected = published.tensors(made.config, small, states=drafter.states(made.config))
    assert made.tensors == expected
    assert made.from_files


@every_pair
def test_without_files_the_layout_is_the_same(name: str) -> None:
    target, raw = PAIRS[name]
    made = twin(name, files=False)
    own = {k: v for k, v in made.tensors.items() if k != "embed_tokens.weight"}
    small = rules.target(target).config
    assert own == published.tensors(made.config, small, states=drafter.states(raw))
    assert not made.from_files


@every_pair
def test_what_decides_the_code_is_kept(name: str) -> None:
    _, raw = PAIRS[name]
    made = twin(name, files=False).config
    for key in ("architectures", "model_type", "draft_vocab_size", "fc_norm", "norm_before_fc",
                "norm_output", "rope_theta", "hidden_act", "speculators_config",
                "num_hidden_layers", "vocab_size", "kv_lora_rank"):  # fmt: skip
        assert made.get(key) == raw.get(key), key


def test_ids_are_those_of_a_shallow_target() -> None:
    made = twin("Kimi, MHA", files=False).config
    assert made["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [2, 3, 4]
    both = twin("gpt-oss, norm before fc", files=False).config
    assert both["eagle_aux_hidden_state_layer_ids"] == [5, 6, 7]
    assert both["eagle_config"]["eagle_aux_hidden_state_layer_ids"] == [5, 6, 7]


def test_a_narrower_drafter_stays_narrower_with_its_own_embedding() -> None:
    made = twin("Llama 3.3, narrower", files=False)
    wide = rules.target(published.LLAMA33_70B).text["hidden_size"]
    assert made.config["target_hidden_size"] == wide
    assert made.config["hidden_size"] < wide
    same = drafter.drafter(
        published.LLAMA33_MODELOPT | {"target_hidden_size": 8192},
        rules.target(published.LLAMA33_70B),
        None,
    ).config
    assert same["target_hidden_size"] == same["hidden_size"] == wide
    assert made.tensors["embed_tokens.weight"] == (128256, made.config["hidden_size"])


def test_a_head_size_that_is_implicit_is_the_real_one() -> None:
    made = drafter.drafter(published.LLAMA31_YUHUILI, LLAMA, None)
    config = made.config
    size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    assert size == 4096 // 32


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"fc.weight": (4096, 3 * 5120)}, "fc.weight"),  # of a wider target
        ({"fc.weight": (4096, 2 * 4096)}, "fc.weight"),  # of two states
        ({"lm_head.weight": (128256, 4096)}, "lm_head.weight"),  # of the whole vocabulary
        ({"midlayer.self_attn.q_proj.weight": (4096, 4096)}, "midlayer.self_attn.q_proj.weight"),
        ({"d2t": (16000,)}, "d2t"),
    ],
)
def test_what_does_not_fit_does_not_fit_in_the_twin(
    changed: dict[str, tuple[int, ...]], wrong: str
) -> None:
    right = twin("Llama 3.1, yuhuili", files=True).tensors
    made = twin("Llama 3.1, yuhuili", files=True, **changed).tensors
    assert made[wrong] != right[wrong]
    assert {k: v for k, v in made.items() if k != wrong} == {
        k: v for k, v in right.items() if k != wrong
    }


def test_a_drafter_for_a_wider_target_is_too_wide_for_the_twin() -> None:
    made = drafter.drafter(published.LLAMA33_MODELOPT, LLAMA, None)
    assert made.config["hidden_size"] > LLAMA.text["hidden_size"]


def test_an_unknown_tensor_shrinks_by_its_sizes() -> None:
    made = twin("Kimi, MHA", files=True, extra=(3 * 7168, 163840)).tensors
    assert made["extra"] == (3 * 256, 163840)


@pytest.mark.parametrize("prefix", ["model.layers.0.", "layers.0.", "model.midlayer."])
def test_a_layer_is_known_by_each_of_its_names(prefix: str) -> None:
    target, raw = PAIRS["Llama 3.1, yuhuili"]
    shapes = published.tensors(raw, target)
    named = {name.replace("midlayer.", prefix): shape for name, shape in shapes.items()}
    plain = drafter.drafter(raw, LLAMA, tensors(shapes)).tensors
    made = drafter.drafter(raw, LLAMA, tensors(named)).tensors
    assert made == {name.replace("midlayer.", prefix): shape for name, shape in plain.items()}


def test_quantized_files_are_left_out_and_said() -> None:
    target, raw = PAIRS["Kimi, MHA"]
    shapes = published.tensors(raw, target) | {"fc.weight_packed": (7168, 2688)}
    made = drafter.drafter(raw, KIMI, tensors(shapes))
    assert not made.from_files
    assert "quantized tensors" in made.notes


def test_nothing_to_go_by_is_refused() -> None:
    raw: dict[str, Any] = {"architectures": ["Eagle3SomethingForCausalLM"]}
    with pytest.raises(RefusedError, match="not at hand"):
        drafter.drafter(raw, KIMI, None)
