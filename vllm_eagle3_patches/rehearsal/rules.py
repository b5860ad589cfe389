"""The twin of a model: its config.json with small sizes, by rules on field names alone.

Kept: everything that decides which code runs - classes, activation and norm kinds, head
dimensions, LoRA ranks, RoPE, routing, window sizes - and everything that names a token.  Made
small: layers, heads (their grouping stays), experts (groups and top-k stay), widths.  The field
names are those of Transformers' config classes; no rule knows a model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_eagle3_patches.preflight.facts import TEXT, integer
from vllm_eagle3_patches.rehearsal import layers

HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num")
EXPERTS = ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k")
GROUPS = ("n_group", "num_expert_group")
TOP_GROUPS = ("topk_group",)
MIDDLE = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size", "d_ff", "inner_size")
NEXT_N = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers", "num_nextn_layers")
DROPPED = ("quantization_config", "compression_config", "auto_map")
VISION = ("vision_config", "audio_config", "vit_config", "vision_tower_config")
# Prefixes under which Kimi-K2.5's vision_config has the usual names.
VISION_PREFIX = "vt_"

DENSE, EXPERT, VISION_MIDDLE = 256, 128, 128
WIDEST = 256  # of a hidden size that is not bound to the heads
STEP = 64  # widths are multiples of this: kernels want it
VISION_HEADS, VISION_LAYERS = 2, 2


@dataclass(frozen=True)
class Twin:
    """A small config of the same kind.

    Attributes:
        config: the twin's config.json.
        real: the text part of the real one.
        text: the text part of the twin's.
        parts: the keys that lead to the text part, none where it is the whole.
        notes: what was dropped, in words for the report.
    """

    config: dict[str, Any]
    real: Mapping[str, Any]
    text: Mapping[str, Any]
    parts: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def widths(self) -> dict[int, int]:
        """Real hidden size -> the twin's."""
        name = first(self.real, HIDDEN)
        return {self.real[name]: self.text[name]} if name else {}


def first(config: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    """The first of these fields that is a size."""
    return next((name for name in names if integer(config, name) is not None), None)


def number(config: Mapping[str, Any], names: tuple[str, ...]) -> int | None:
    name = first(config, names)
    return None if name is None else integer(config, name)


def target(config: Mapping[str, Any], parallel: int = 1) -> Twin:
    """The twin of a target's config.json; `parallel` is the tensor-parallel size it is cut for."""
    twin = copy.deepcopy(dict(config))
    notes = tuple(dict.fromkeys(_drop(twin)))
    real: Mapping[str, Any] = config
    part, parts, holders = twin, [], [twin]
    while inner := next((k for k in TEXT if isinstance(part.get(k), dict)), None):
        real, part = real[inner], part[inner]
        parts.append(inner)
        holders.append(part)
    shrink_text(part, parallel)
    _same_at_the_top(twin, part, real)
    name = first(real, HIDDEN)
    widths = {real[name]: part[name]} if name else {}
    for holder in holders:
        for key in VISION:
            if isinstance(holder.get(key), dict):
                shrink_vision(holder[key], widths)
    return Twin(twin, real, part, tuple(parts), notes)


def _drop(config: dict[str, Any]) -> Iterator[str]:
    for key in DROPPED:
        if config.pop(key, None) is not None:
            yield key
    for value in config.values():
        if isinstance(value, dict):
            yield from _drop(value)


def _same_at_the_top(twin: dict[str, Any], text: dict[str, Any], real: Mapping[str, Any]) -> None:
    """A wrapper's config that repeats sizes of its text part repeats the twin's."""
    if text is not twin:
        for key, value in real.items():
            if key in twin and twin[key] == value and text.get(key) != value:
                twin[key] = copy.deepcopy(text[key])


def heads(config: Mapping[str, Any], parallel: int = 1) -> tuple[int, int]:
    """Attention and key-value heads of the twin: two groups, of two where they had more."""
    count = number(config, HEADS) or 1
    kv = number(config, KV_HEADS) or count
    if kv == count or count % kv:
        few = min(count, max(4, parallel))
        return few, min(kv, few)
    few = min(kv, max(2, parallel))
    return few * min(count // kv, 2), few


def width(config: Mapping[str, Any], hidden: int, after: int) -> int:
    """The hidden size for `after` heads: theirs where the real one is its heads', else small."""
    before = number(config, HEADS) or 1
    size = integer(config, "head_dim")
    if "kv_lora_rank" not in config and size in (None, hidden // before):
        return hidden // before * after
    return min(WIDEST, max(2 * STEP, round(hidden * after / before / STEP) * STEP))


def experts(config: Mapping[str, Any]) -> int | None:
    """How many experts the twin has: every group two at least, and more than top-k asks for."""
    count = number(config, EXPERTS)
    if count is None:
        return None
    top = number(config, TOP_K) or 1
    groups = number(config, GROUPS) or 1
    chosen = number(config, TOP_GROUPS) or groups
    each = max(2, -(-top // min(chosen, groups)))
    few = groups * each
    if few <= top:
        few *= 2
    return min(count, few)


def shrink_text(config: dict[str, Any], parallel: int = 1) -> None:
    """Makes the config of a language model small, in place."""
    before = number(config, HEADS)
    if before is not None:
        many, kv = heads(config, parallel)
        name = first(config, HIDDEN)
        hidden = integer(config, name) if name else None
        if name and hidden:
            _replace_width(config, hidden, width(config, hidden, many))
        for group, value in ((HEADS, many), (KV_HEADS, kv)):
            for key in group:
                if integer(config, key) is not None:
                    config[key] = value
    _shrink_experts(config)
    for key in list(config):
        middle = _middle(key, config[key])
        if middle is not None:
            config[key] = middle
    for key in NEXT_N:
        if integer(config, key) is not None:
            config[key] = 0
    layers.cut(config)


def _shrink_experts(config: dict[str, Any]) -> None:
    few = experts(config)
    for key in EXPERTS:
        count = integer(config, key)
        if few is not None and count is not None:
            config[key] = min(few, count)


def _middle(key: str, value: Any) -> Any:
    """The twin's value of a field that says how wide an MLP is, else None."""
    if not key.endswith(MIDDLE):
        return None
    small = EXPERT if "expert" in key or "moe" in key else DENSE
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return min(value, small)
    if isinstance(value, list) and value and all(type(v) is int for v in value):
        return [min(v, small) if v > 0 else v for v in value]
    return None


def _replace_width(config: dict[str, Any], before: int, after: int) -> None:
    for key, value in config.items():
        if (key in HIDDEN or key.endswith("hidden_size")) and value == before:
            config[key] = after


def shrink_vision(config: dict[str, Any], widths: Mapping[int, int]) -> None:
    """Makes a vision or audio tower small, in place; `widths`: the text model's hidden size."""
    plain = {k.removeprefix(VISION_PREFIX): v for k, v in config.items()}
    before, hidden = number(plain, HEADS), None
    name = first(plain, ("embed_dim", *HIDDEN))
    sizes = dict(widths)
    few = min(before or VISION_HEADS, VISION_HEADS)
    if name is not None and before is not None:
        hidden = plain[name]
        sizes.setdefault(hidden, hidden // before * few)
    for key, value in list(config.items()):
        bare = key.removeprefix(VISION_PREFIX)
        new = _vision_field(bare, value, sizes, few)
        if new is not None:
            config[key] = new
        if bare != key:  # newer config classes read the name without the prefix
            config.setdefault(bare, config[key])


def _vision_field(key: str, value: Any, sizes: Mapping[int, int], few: int) -> Any:
    if isinstance(value, dict):
        return None
    if key in layers.COUNTS:
        return _at_most(VISION_LAYERS, value)
    if key in HEADS or key in KV_HEADS:
        return _at_most(few, value)
    if key.endswith(MIDDLE):
        return _at_most(VISION_MIDDLE, value)
    if isinstance(value, list) and layers.names_layers(key):
        return layers.kept_ids(value, VISION_LAYERS)
    if isinstance(value, int) and not isinstance(value, bool):
        return sizes.get(value) if "size" in key or "dim" in key else None
    return None


def _at_most(most: int, value: Any) -> Any:
    """The number, or one for each stage of the tower; None of what is neither."""
    if isinstance(value, list):
        return [v if (new := _at_most(most, v)) is None else new for v in value]
    return min(value, most) if type(value) is int else None
