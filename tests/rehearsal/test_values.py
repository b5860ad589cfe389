"""What is no size, no name and no object is refused by its name."""

from __future__ import annotations

from typing import Any

import pytest
from preflight import published
from preflight.published import with_settings

from rehearsal import models
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.rehearsal import values

LLAMA, DRAFTER = models.LLAMA31_8B, published.LLAMA31_YUHUILI
WHERE = "/models/m/config.json"


def refused(config: dict[str, Any], of: Any = values.target) -> str:
    with pytest.raises(RefusedError) as found:
        of(config, WHERE)
    assert found.value.where == WHERE
    assert found.value.next
    return found.value.what


@pytest.mark.parametrize("name", models.MODELS)
def test_published_models_are_in_order(name: str) -> None:
    values.target(models.MODELS[name], WHERE)
    values.drafter(models.llama_drafter(models.MODELS[name]), WHERE)


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_attention_heads", "num_key_value_heads", "num_hidden_layers",
            "vocab_size", "head_dim"],
)  # fmt: skip
@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (-1, "-1"), (32.0, "32.0"), ("32", '"32"'), (True, "true"), ([32], "[32]"),
     ({"a": 1}, '{"a": 1}'), (10**15, str(10**15)), (float("nan"), "NaN")],
)  # fmt: skip
def test_what_is_no_size(key: str, value: Any, said: str) -> None:
    expected = f"`{key}` is {said}; it has to be a whole number from 1 to "
    assert refused({**LLAMA, key: value}).startswith(expected)
    assert refused({**DRAFTER, key: value}, values.drafter).startswith(expected)


@pytest.mark.parametrize("key", ["head_dim", "num_key_value_heads", "vocab_size"])
def test_null_is_as_good_as_absent(key: str) -> None:
    values.target({**LLAMA, key: None}, WHERE)


def test_a_size_is_looked_for_where_vllm_looks() -> None:
    config = {**models.KIMI_K25, "text_config": {**models.KIMI_K25["text_config"], "n_group": -8}}
    assert refused(config).startswith("`text_config.n_group` is -8;")
    layer = {**published.SPECULATORS["transformer_layer_config"], "hidden_size": "4096"}
    raw = {**published.SPECULATORS, "transformer_layer_config": layer}
    said = refused(raw, values.drafter)
    assert said.startswith('`transformer_layer_config.hidden_size` is "4096";')


def test_a_config_without_sizes() -> None:
    said = refused({"architectures": ["X"], "text_config": {}})
    assert "how many layers" in said
    assert "no `text_config.num_hidden_layers`" in said
    assert "no `hidden_size`" in refused({"num_hidden_layers": 3})


@pytest.mark.parametrize("value", ["LlamaForCausalLM", [1], [None], {"a": 1}, 7])
@pytest.mark.parametrize("of", [values.target, values.drafter])
def test_architectures_that_are_no_list_of_names(value: Any, of: Any) -> None:
    config = LLAMA if of is values.target else DRAFTER
    said = refused({**config, "architectures": value}, of)
    assert said.startswith("`architectures` is ")
    assert "a list of class names" in said


@pytest.mark.parametrize("value", [None, []])
def test_without_architectures_vllm_goes_by_the_model_type(value: Any) -> None:
    values.target({**LLAMA, "architectures": value}, WHERE)
    values.drafter({**DRAFTER, "architectures": value}, WHERE)


@pytest.mark.parametrize("value", [[], [{"hidden_size": 8}], "x", 3, False])
def test_parts_that_are_no_objects(value: Any) -> None:
    for key in ("text_config", "vision_config"):
        said = refused({**LLAMA, key: value})
        assert said.startswith(f"`{key}` is ")
        assert said.endswith("has to be an object")
    for key in ("transformer_layer_config", "eagle_config"):
        assert refused({**DRAFTER, key: value}, values.drafter).startswith(f"`{key}` is ")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"num_attention_heads": 10**6, "head_dim": 128},
            "`hidden_size` 4096 is less than `num_attention_heads` 1000000",
        ),
        (
            {"num_attention_heads": 10**6},
            "`hidden_size` 4096 is no multiple of `num_attention_heads` 1000000, and no head_dim",
        ),
        (
            {"num_attention_heads": 30, "head_dim": None},
            "`hidden_size` 4096 is no multiple of `num_attention_heads` 30, and no head_dim",
        ),
        (
            {"num_key_value_heads": 5},
            "`num_attention_heads` 32 is no multiple of `num_key_value_heads` 5",
        ),
        ({"num_experts": 10, "n_group": 4}, "`num_experts` 10 is no multiple of `n_group` 4"),
    ],
)
def test_sizes_that_do_not_go_together(changed: dict[str, Any], said: str) -> None:
    assert refused({**LLAMA, **changed}).startswith(said)


def test_heads_of_a_size_of_their_own_need_not_divide() -> None:
    values.target({**LLAMA, "num_attention_heads": 24, "head_dim": 128}, WHERE)
    values.target({**models.DEEPSEEK_V3, "num_key_value_heads": 3}, WHERE)


def test_a_tower_may_differ_from_stage_to_stage() -> None:
    tower = {"num_heads": [4, 8], "num_hidden_layers": [1, 1], "embed_dim": [64, 128]}
    values.target({**LLAMA, "vision_config": tower}, WHERE)
    said = refused({**LLAMA, "vision_config": {**tower, "num_heads": ["4"]}})
    assert said.startswith('`vision_config.num_heads` is "4";')


def test_a_tower_with_more_heads_than_it_is_wide() -> None:
    tower = {"vt_hidden_size": 64, "vt_num_attention_heads": 100}
    assert "no multiple" in refused({**LLAMA, "vision_config": tower})


@pytest.mark.parametrize("value", ["2", [2, "30"], [[2]], [2.5], [True], {"a": 1}, 3])
def test_ids_that_are_no_numbers(value: Any) -> None:
    raw = {**DRAFTER, "eagle_config": {"layer_ids": value}}
    said = refused(raw, values.drafter)
    assert said.startswith("`eagle_config.layer_ids` is ")
    assert said.endswith("has to be a list of layer numbers")


def test_more_ids_than_any_drafter_has() -> None:
    raw = {**DRAFTER, "eagle_aux_hidden_state_layer_ids": list(range(65))}
    assert "has 65 layer numbers" in refused(raw, values.drafter)


def test_nesting_without_end() -> None:
    nested: Any = {}
    for _ in range(900):
        nested = {"text_config": nested}
    assert "17 deep" in refused({**LLAMA, "x": nested})
    deep: Any = []
    for _ in range(900):
        deep = [deep]
    assert "17 deep" in refused({**DRAFTER, "x": deep}, values.drafter)


def test_more_values_than_a_config_holds() -> None:
    assert "1000000 values under `layer_types`" in refused({**LLAMA, "layer_types": [0] * 10**6})
    many = {f"k{n}": [0] * 60000 for n in range(5)}
    assert "values in all" in refused({**LLAMA, **many})


def test_a_long_value_is_said_in_short() -> None:
    assert len(refused(with_settings(LLAMA, hidden_size="x" * 10**6))) < 200


def test_a_name_that_would_write_to_the_terminal() -> None:
    said = refused({**LLAMA, "\x1b[2J" + "x" * 10**5 + "_rank": -1})
    assert "\x1b" not in said
    assert len(said) < 200
