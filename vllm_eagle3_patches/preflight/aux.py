"""The aux layer ids of a combination: what the drafter names, and what each runner takes.

The runners' own functions are run on paper: `_get_eagle3_aux_layers_from_config` of V1
(`gpu_model_runner.py`, from 0.11.1), `get_eagle3_aux_layers_from_config` of V2 (from 0.17.0), and
the target's default.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_eagle3_patches import registry
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.drafter import Drafter, bag
from vllm_eagle3_patches.preflight.runner import V1, V2_AUX
from vllm_eagle3_patches.preflight.statements import run
from vllm_eagle3_patches.preflight.values import UNKNOWN, Bag
from vllm_eagle3_patches.sources import Sources, bases

V1_RUNNER = "vllm/v1/worker/gpu_model_runner.py"
KEY = "eagle_aux_hidden_state_layer_ids"
NESTED = "eagle_config"
DEFAULT = ("get_eagle3_default_aux_hidden_state_layers", "get_eagle3_aux_hidden_state_layers")

Ids = tuple[int, ...]


@dataclass(frozen=True)
class Named:
    """The ids that the drafter's config.json names, and under which key."""

    ids: Ids
    key: str


@dataclass(frozen=True)
class Odd:
    """A value under one of the keys that is no list of layer ids."""

    value: object
    key: str


def _ids(value: object) -> Ids | None:
    """A list of whole numbers; 2.0 equals 2 where vLLM looks a layer's number up in them."""
    if not isinstance(value, (list, tuple)) or not value:
        return None
    if not all(type(i) is int or (type(i) is float and i.is_integer()) for i in value):
        return None
    return tuple(map(int, value))


def _places(raw: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    yield f"`{KEY}`", raw.get(KEY)
    nested = raw.get(NESTED)
    if isinstance(nested, dict):
        for key in (KEY, "layer_ids"):
            yield f"`{NESTED}.{key}`", nested.get(key)


def odd(raw: Mapping[str, Any]) -> tuple[Odd, ...]:
    """What stands under the known keys and cannot be layer ids; nothing and null ask for none."""
    return tuple(
        Odd(value, key)
        for key, value in _places(raw)
        if value not in (None, [], {}, "") and _ids(value) is None
    )


def named(raw: Mapping[str, Any]) -> Named | None:
    """The ids in config.json, under whichever of the known keys."""
    found = ((_ids(value), key) for key, value in _places(raw))
    return next((Named(ids, key) for ids, key in found if ids), None)


def read_by(sources: Sources, runner: str, drafter: Drafter) -> Ids | object | None:
    """The ids this runner takes from the drafter's config; None for none, UNKNOWN if unsure.

    Where it takes a list that holds other things than ids, that list as a tuple.
    """
    path, name = (
        (V1_RUNNER, "_get_eagle3_aux_layers_from_config")
        if runner == V1
        else (V2_AUX, "get_eagle3_aux_layers_from_config")
    )
    function = snippets.function(sources, path, name)
    if function is None:
        return None
    speculative = Bag({"draft_model_config": Bag({"hf_config": bag(drafter.config)})})
    argument = function.args.args[0].arg
    outcome = run(
        function,
        {argument: Bag({"speculative_config": speculative}) if argument == "self" else speculative},
    )
    if outcome.value is None:
        return None
    taken = outcome.value
    other = tuple(taken) if isinstance(taken, (list, tuple)) and taken else UNKNOWN
    return _ids(taken) or other


def default(sources: Sources, architecture: str, layers: int) -> Ids | None:
    """The target's default ids; where its class has none yet, those that our patch gives it."""
    holder = Bag({"layers": range(layers)})  # only its length is asked for
    holder.set("model", holder)
    holder.set("language_model", holder)
    holder.set("get_language_model", lambda: holder)
    entry = registry.read(sources).get(architecture)
    try:
        sites = registry.classes(sources, entry) if entry else []
    except RefusedError:
        sites = []
    for site in sites[:1]:
        for owner in bases(sources, site):
            for name in DEFAULT:
                method = owner.method(name)
                if method is not None and (ids := _ids(run(method, {"self": holder}).value)):
                    return ids
    return (2, layers // 2, layers - 3)
