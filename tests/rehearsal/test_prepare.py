"""Whatever the two config.json files hold, there are two small twins or a refusal, and soon."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from preflight import published
from preflight.published import Config

from rehearsal import models
from vllm_eagle3_patches.errors import PatchError
from vllm_eagle3_patches.preflight.safetensors import Tensor
from vllm_eagle3_patches.rehearsal import bounds, drafter, prepare, rules

DRAFTERS = {
    name: value
    for name, value in vars(published).items()
    if isinstance(value, dict) and "draft_vocab_size" in value
}
ODD = (
    None, True, False, 0, -1, 1, 2, 3, 63, 4097, 10**6, 2**31, 10**9, 10**15, 10**30,
    0.0, 4096.0, 1e308, math.inf, math.nan, "", "8", "LlamaForCausalLM", [], [0], [4096] * 61,
    ["a"], [None], [[1]], [{}], list(range(61)), [-5] * 40, {}, {"hidden_size": 10**5},
    {"a": {"b": [1]}}, {"hidden_size": 8, "num_hidden_layers": 10**4, "vocab_size": 10**9},
)  # fmt: skip


def places(config: Any) -> Iterator[tuple[Any, ...]]:
    for key, value in config.items() if isinstance(config, dict) else ():
        yield (key,)
        yield from ((key, *rest) for rest in places(value))


PLACES = {name: sorted(places(config)) for name, config in {**models.MODELS, **DRAFTERS}.items()}


@st.composite
def mutated(draw: st.DrawFn, configs: dict[str, Config]) -> Config:
    """A config with some of its values changed, taken out, or put in."""
    name = draw(st.sampled_from(sorted(configs)))
    config = copy.deepcopy(configs[name])
    for *path, key in draw(st.lists(st.sampled_from(PLACES[name]), max_size=3)):
        holder: Any = config
        for step in path:
            holder = holder.get(step) if isinstance(holder, dict) else None
        if not isinstance(holder, dict):
            continue
        if draw(st.integers(0, 4)) == 0:
            holder.pop(key, None)
        else:
            holder[key] = copy.deepcopy(draw(st.sampled_from(ODD)))
    return config


def target_weights(text: dict[str, Any]) -> int:
    """Bytes of float32 that a Llama of that config has at least."""

    def number(*names: str) -> int:
        return rules.number(text, names) or 1

    experts, vocab, hidden = number(*rules.EXPERTS), number("vocab_size"), number(*rules.HIDDEN)
    heads = number(*rules.HEADS) * number("head_dim")
    middle = number("moe_intermediate_size", "intermediate_size")
    layer = 2 * heads + 3 * experts * middle
    return 4 * hidden * (vocab + number("num_hidden_layers") * layer)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(config=mutated(models.MODELS), raw=mutated(DRAFTERS), files=st.booleans())
def test_odd_configs_have_small_twins_or_are_refused(
    config: Config, raw: Config, files: bool
) -> None:
    tensors = None
    if files:
        shapes = published.tensors(published.LLAMA31_YUHUILI, models.LLAMA31_8B)
        tensors = {name: Tensor(shape, "BF16") for name, shape in shapes.items()}
    before, start = repr((config, raw)), time.process_time()
    try:
        target, small = prepare.twins(config, raw, tensors)
    except PatchError as refused:
        assert len(str(refused)) < 1000
        return
    finally:
        assert time.process_time() - start < 5
        assert repr((config, raw)) == before
    assert target_weights(dict(target.text)) <= bounds.WEIGHTS
    assert target.text["num_hidden_layers"] <= 33
    assert sum(math.prod(shape) for shape in small.tensors.values()) * 4 <= bounds.WEIGHTS
    assert all(size >= 0 for shape in small.tensors.values() for size in shape)


@pytest.mark.parametrize("name", models.MODELS)
def test_published_models_are_far_below_the_bound(name: str) -> None:
    config = models.MODELS[name]
    raw = models.llama_drafter(config)
    assert prepare.twins(config, raw, None)[0] == rules.target(config)
    terms = bounds._terms(rules.target(config).config, rules.target(config).parts)
    assert 4 * sum(count for count, _ in terms) < bounds.WEIGHTS / 3


@pytest.mark.parametrize("parallel", [1, 2, 8])
@pytest.mark.parametrize("name", models.MODELS)
def test_published_models_are_never_refused(name: str, parallel: int) -> None:
    config = models.MODELS[name]
    target, small = prepare.twins(config, models.llama_drafter(config), None, parallel)
    assert target == rules.target(config, parallel)
    assert small == drafter.drafter(models.llama_drafter(config), target, None, parallel)


@pytest.mark.parametrize("name", DRAFTERS)
def test_published_drafters_are_never_refused(name: str) -> None:
    target = rules.target(models.LLAMA31_8B)
    made = prepare.twins(models.LLAMA31_8B, DRAFTERS[name], None)[1]
    assert made == drafter.drafter(DRAFTERS[name], target, None)


@pytest.mark.parametrize("many", [60_000, 10**6])
@pytest.mark.parametrize("key", ["eagle_aux_hidden_state_layer_ids", "layer_types", "mlp_layers"])
@pytest.mark.parametrize("whose", ["target", "drafter"])
def test_a_list_without_end_takes_no_time(whose: str, key: str, many: int) -> None:
    config, raw = copy.deepcopy(models.LLAMA31_8B), copy.deepcopy(published.LLAMA31_YUHUILI)
    (config if whose == "target" else raw)[key] = list(range(many))
    start = time.process_time()
    try:
        prepare.twins(config, raw, None)
    except PatchError as refused:
        assert key in refused.what
    assert time.process_time() - start < 5


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 10, 1000, 128256])
def test_the_prompt_is_of_the_vocabulary(vocabulary: int) -> None:
    assert all(0 <= token < vocabulary for token in prepare.prompt(vocabulary))
