"""Few layers, every kind among them; ids keep their order and stay distinct."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rehearsal import models
from vllm_eagle3_patches.rehearsal import layers


@pytest.mark.parametrize(
    ("name", "depth"),
    [
        ("Llama-3.1-8B", 7),
        ("DeepSeek-V3", 7),
        ("gpt-oss-20b", 7),
        ("Gemma-3-27B", 7),
        ("Qwen3-30B-A3B", 7),
    ],
)
def test_published_models_are_seven_layers_deep(name: str, depth: int) -> None:
    config = models.MODELS[name]
    assert layers.depth(config.get("text_config", config)) == depth


def test_a_model_with_fewer_layers_keeps_them() -> None:
    assert layers.depth({"num_hidden_layers": 4}) == 4


def test_a_kind_of_layer_that_comes_late_is_reached() -> None:
    kinds = ["linear"] * 9 + ["full"] + ["linear"] * 30
    config = {"num_hidden_layers": 40, "layer_types": kinds, "windows": [0] * 40}
    layers.cut(config)
    assert config["num_hidden_layers"] == 10
    assert config["layer_types"] == kinds[:10]
    assert config["windows"] == [0] * 10


def test_a_kind_of_layer_may_be_an_object() -> None:
    kinds = [{"kind": "linear"}] * 9 + [{"kind": "full"}] + [{"kind": "linear"}] * 30
    assert layers.depth({"num_hidden_layers": 40, "block_configs": kinds}) == 10


def test_a_list_of_a_hundred_thousand_kinds_takes_no_time() -> None:
    many = 100_000
    config: dict[str, Any] = {"num_hidden_layers": many, "kinds": list(range(many))}
    config["block_configs"] = [{"n": n} for n in range(many)]
    start = time.process_time()
    layers.cut(config)
    assert time.process_time() - start < 10  # quadratic: minutes
    assert len(config["kinds"]) == config["num_hidden_layers"] == layers.MOST


def test_a_period_and_leading_dense_layers_are_reached() -> None:
    assert layers.depth({"num_hidden_layers": 48, "full_attention_interval": 8}) == 9
    assert layers.depth({"num_hidden_layers": 48, "first_k_dense_replace": 9}) == 11


def test_lists_of_layer_numbers_lose_those_that_are_gone() -> None:
    config = {"num_hidden_layers": 40, "mlp_only_layers": [0, 3, 30], "bad_token_indices": [90]}
    layers.cut(config)
    assert config["mlp_only_layers"] == [0, 3]
    assert config["bad_token_indices"] == [90]


def test_rope_factors_are_no_per_layer_list() -> None:
    config = {"num_hidden_layers": 48, "short_factor": [1.0] * 48}
    layers.cut(config)
    assert len(config["short_factor"]) == 48


def test_a_config_without_layers_is_left_alone() -> None:
    config = {"layer_types": ["full"]}
    layers.cut(config)
    assert config == {"layer_types": ["full"]}


@pytest.mark.parametrize(
    ("ids", "many", "few", "expected"),
    [
        ((2, 30, 58), 61, 7, (2, 3, 4)),  # vLLM's default for 61 layers: the default for 7
        ((1, 17, 32), 36, 7, (1, 3, 6)),
        ((24, 30, 36), 36, 7, (5, 6, 7)),  # the stream after the last layer stays that
        ((0, 1, 2), 61, 7, (0, 1, 2)),
        ((58, 59, 60), 61, 7, (4, 5, 6)),
        ((2, 30, 62), 61, 7, (1, 3, 8)),  # out of range: so is the twin's
        ((-1, 2), 61, 7, (-1, 1)),
        ((30, 30, 2), 61, 7, (3, 3, 1)),  # named twice: so are the twin's
    ],
)
def test_ids_of_the_twin(
    ids: tuple[int, ...], many: int, few: int, expected: tuple[int, ...]
) -> None:
    assert layers.remap(ids, many, few) == expected


@given(st.data())
def test_ids_keep_order_distinctness_and_range(data: st.DataObject) -> None:
    many = data.draw(st.integers(8, 128))
    few = data.draw(st.integers(7, many))
    ids = tuple(data.draw(st.lists(st.integers(-3, many + 3), min_size=1, max_size=5)))
    found = layers.remap(ids, many, few)
    for one, other, before, after in zip(ids, ids[1:], found, found[1:], strict=False):
        assert (one < other) == (before < after)
        assert (one == other) == (before == after)
    for number, new in zip(ids, found, strict=True):
        assert (0 <= number <= many) == (0 <= new <= few)
        assert (number == many) == (new == few)
        assert (number == 0) == (new == 0)
