"""How deep the twin is: few layers, every kind of layer among them, per-layer lists cut alike."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vllm_eagle3_patches.preflight.facts import integer

COUNTS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth")
FEWEST = 7  # vLLM's default aux ids (2, L // 2, L - 3) are distinct from here on
MOST = 32  # a pattern longer than this is not followed to its end
# A period, or a number of leading layers of another kind.
PERIODS = ("sliding_window_pattern", "full_attention_interval", "global_attn_every_n_layers",
           "interleave_moe_layer_step", "decoder_sparse_step", "moe_layer_freq",
           "moe_layer_interval", "expert_interval", "attn_layer_period", "expert_layer_period",
           "no_rope_layer_interval", "moe_every_n_layers")  # fmt: skip
LEADING = ("first_k_dense_replace", "num_dense_layers", "n_dense_layers", "moe_layer_start_index",
           "first_dense_layers")  # fmt: skip
# Lists that are no per-layer lists although their length may be the number of layers.
NOT_LAYERS = ("factor", "section", "mean", "std", "token", "architectures", "shape", "kernel")
ID_LISTS = ("_layers", "_layer_ids", "_layer_idx", "_indexes", "_indices", "_index")


def count(config: Mapping[str, Any]) -> int | None:
    """The number of layers a config names."""
    name = next((n for n in COUNTS if integer(config, n) is not None), None)
    return None if name is None else integer(config, name)


def names_layers(key: str) -> bool:
    """Whether a list under this name holds numbers of layers."""
    return key.endswith(ID_LISTS) and "token" not in key


def _per_layer(config: Mapping[str, Any], layers: int) -> dict[str, list[Any]]:
    return {
        key: value
        for key, value in config.items()
        if isinstance(value, list)
        and len(value) == layers
        and not any(part in key for part in NOT_LAYERS)
    }


def depth(config: Mapping[str, Any]) -> int | None:
    """The twin's number of layers: the fewest that hold every kind of layer."""
    layers = count(config)
    if layers is None:
        return None
    wanted = FEWEST
    for key in PERIODS:
        period = integer(config, key)
        if period is not None and period <= MOST:
            wanted = max(wanted, period + 1)
    for key in LEADING:
        leading = integer(config, key)
        if leading is not None and leading < layers:
            wanted = max(wanted, min(leading, MOST - 2) + 2)
    for values in _per_layer(config, layers).values():
        wanted = max(wanted, min(_reach(values), MOST))
    return min(wanted, layers)


def _reach(values: Sequence[Any]) -> int:
    """How many leading entries hold every value of the list, in time linear in its length."""
    seen: set[Any] = set()
    reach = 0
    for place, value in enumerate(values):
        known = (json.dumps(value, sort_keys=True),) if isinstance(value, (dict, list)) else value
        if known not in seen:
            seen.add(known)
            reach = place + 1
    return reach


def cut(config: dict[str, Any]) -> None:
    """Makes a config shallow, in place."""
    layers, few = count(config), depth(config)
    if layers is None or few is None:
        return
    for key, values in _per_layer(config, layers).items():
        config[key] = values[:few]
    for key, value in config.items():
        if isinstance(value, list) and names_layers(key) and _ids(value):
            config[key] = [number for number in value if number < few]
    for key in COUNTS:
        if integer(config, key) is not None:
            config[key] = few
    if integer(config, "max_window_layers") is not None:
        config["max_window_layers"] = min(config["max_window_layers"], few)


def _ids(values: Iterable[Any]) -> bool:
    return all(type(value) is int for value in values)


def kept_ids(values: Sequence[Any], few: int) -> list[Any]:
    """Ids of a tower's layers, as many as there is room for; the last layer stays one of them."""
    if not _ids(values):
        return list(values)
    return list(range(few))[-min(len(values), max(few - 1, 1)) :] if values else []


def remap(ids: Sequence[int], layers: int, few: int) -> tuple[int, ...]:
    """Aux layer ids of a twin with `few` layers: same order, distinct where they were distinct.

    vLLM's default (2, L // 2, L - 3) becomes the default for `few`; 0 and L stay the ends; an id
    out of range stays out of range.
    """
    if tuple(ids) == (2, layers // 2, layers - 3):
        return (2, few // 2, few - 3)
    inside = sorted({i for i in ids if 0 < i < layers})
    room = few - 1
    places: dict[int, int] = {0: 0, layers: few}
    for order, number in enumerate(inside):
        left = len(inside) - order - 1
        lowest = places[inside[order - 1]] + 1 if order else 1
        wanted = round(number * few / layers)
        places[number] = max(min(wanted, room - left), min(lowest, room))
    return tuple(places[i] if i in places else i if i < 0 else few + i - layers for i in ids)
