"""The drafter's twin: its config and tensors shrunk with the same ratio as the target's.

What fits in the real pair fits in the twins, and what does not fit does not: sizes of the real
drafter that are as its config and its target ask for get the twin's size, others a size that is
wrong in the twin too.  Tensor names are those of the real files where they are at hand.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.preflight.aux import KEY, NESTED
from vllm_eagle3_patches.preflight.facts import integer
from vllm_eagle3_patches.preflight.safetensors import Tensor
from vllm_eagle3_patches.rehearsal import layers, rules
from vllm_eagle3_patches.rehearsal.rules import Twin
from vllm_eagle3_patches.rehearsal.values import LAYER, is_id

Shape = tuple[int, ...]
# Tensors of Transformers' and vLLM's own formats name the one layer in three ways.
ONE_LAYER = re.compile(r"^(?:model\.)?(?:layers\.\d+\.|midlayer\.)?")


@dataclass(frozen=True)
class DrafterTwin:
    """A small drafter.

    Attributes:
        config: its config.json.
        tensors: name -> shape of each tensor its checkpoint holds.
        from_files: whether the names are those of the real files.
        notes: what is not as in the real drafter.
    """

    config: dict[str, Any]
    tensors: dict[str, Shape]
    from_files: bool
    notes: tuple[str, ...]


def drafter(
    raw: Mapping[str, Any],
    target: Twin,
    tensors: Mapping[str, Tensor] | None,
    parallel: int = 1,
    where: object = None,
) -> DrafterTwin:
    """The twin of a drafter for that target; `where` is the path of its config.json.

    Raises:
        RefusedError: its tensors are not at hand, and its config does not tell them; or it takes
            more aux states than the twin has layers for.
    """
    config = copy.deepcopy(dict(raw))
    notes = list(rules._drop(config))
    layer = config[LAYER] if isinstance(config.get(LAYER), dict) else config
    real = raw[LAYER] if layer is not config else raw
    _shrink(layer, real, target, parallel, notes)
    for holder, before in ((config, raw), (layer, real)):
        for key in ("target_hidden_size", "target_hidden_dim"):
            size = integer(before, key)
            if size is not None:
                holder[key] = scaled(size, target)
    _remap_ids(config, target, where)
    small, wide = _layout(config, target.text), _layout(raw, target.real)
    if tensors is None or _quantized(tensors):
        if tensors is not None:
            notes.append("quantized tensors")
        if small is None:
            raise RefusedError(
                "the drafter's tensors are not at hand, and its config.json does not tell them",
                where=where,
                next="give a drafter folder that holds its safetensors files",
            )
        return DrafterTwin(config, small, False, tuple(notes))
    known = _by_bare_name(wide or {}, small or {})
    sizes = _values(real, layer, target)
    shapes = {
        name: _shape(tensor.shape, known.get(ONE_LAYER.sub("", name)), sizes)
        for name, tensor in tensors.items()
    }
    return DrafterTwin(config, shapes, True, tuple(notes))


def scaled(size: int, target: Twin) -> int:
    """A width: the twin's of the target's own, and another one of any other."""
    before = rules.number(target.real, rules.HIDDEN)
    after = rules.number(target.text, rules.HIDDEN)
    if before is None or after is None or size == before:
        return after if after is not None and size == before else size
    small = max(rules.STEP, round(size * after / before / rules.STEP) * rules.STEP)
    if small != after:
        return small
    return after - rules.STEP if size < before and after > rules.STEP else after + rules.STEP


def _shrink(
    layer: dict[str, Any],
    real: Mapping[str, Any],
    target: Twin,
    parallel: int,
    notes: list[str],
) -> None:
    depth = {key: layer[key] for key in layers.COUNTS if key in layer}
    lists = {key: copy.deepcopy(v) for key, v in layer.items() if isinstance(v, list)}
    hidden = rules.number(real, rules.HIDDEN)
    rules.shrink_text(layer, parallel)
    layer.update(depth | lists)
    if hidden is None:
        return
    after = scaled(hidden, target)
    for key in rules.HIDDEN:
        if real.get(key) == hidden:
            layer[key] = after
    count = rules.number(real, rules.HEADS)
    if count and integer(real, "head_dim") is None and "kv_lora_rank" not in real:
        size = hidden // count
        if (rules.number(layer, rules.HEADS) or 1) * size != after:
            layer["head_dim"] = size
            notes.append(f"head_dim {size} written out")


def _remap_ids(config: dict[str, Any], target: Twin, where: object) -> None:
    many, few = layers.count(target.real), layers.count(target.text)
    if many is None or few is None:
        return
    for holder in (config, config.get(NESTED)):
        for key in (KEY, "layer_ids"):
            ids = holder.get(key) if isinstance(holder, dict) else None
            if not isinstance(holder, dict) or not isinstance(ids, list) or not ids:
                continue
            if not all(map(is_id, ids)):
                continue
            inside = {number for number in ids if 0 < number < many}
            if len(inside) >= few:
                raise RefusedError(
                    f"`{key}` names {len(inside)} layers between the first and the last; the "
                    f"target's twin has {few} layers, with room for {few - 1}",
                    where=where,
                    next="vllm-eagle3-patch check --drafter examines the pair without a twin",
                )
            new = layers.remap([int(number) for number in ids], many, few)
            holder[key] = [type(old)(number) for old, number in zip(ids, new, strict=True)]


def _quantized(tensors: Mapping[str, Tensor]) -> bool:
    return any(name.endswith(("_packed", "_scale", "qweight", "_scale_inv")) for name in tensors)


def states(config: Mapping[str, Any]) -> int:
    """How many aux states the drafter's fc takes."""
    nested = config.get(NESTED)
    for holder in (config, nested):
        if isinstance(holder, dict):
            ids = holder.get(KEY) or holder.get("layer_ids")
            if isinstance(ids, list) and ids:
                return len(ids)
    if isinstance(nested, dict) and nested.get("use_aux_hidden_state") is False:
        return 1
    return 3


def _layout(config: Mapping[str, Any], target: Mapping[str, Any]) -> dict[str, Shape] | None:
    """The tensors that vLLM's Llama and DeepSeek EAGLE-3 classes read, named as ModelOpt does."""
    inner = config.get(LAYER)
    layer: Mapping[str, Any] = inner if isinstance(inner, dict) else config
    hidden, heads = rules.number(layer, rules.HIDDEN), rules.number(layer, rules.HEADS)
    middle, vocab = integer(layer, "intermediate_size"), integer(layer, "vocab_size")
    wide = integer(config, "target_hidden_size") or rules.number(target, rules.HIDDEN)
    if hidden is None or heads is None or middle is None or vocab is None or wide is None:
        return None
    draft, count = integer(config, "draft_vocab_size") or vocab, states(config)
    shapes: dict[str, Shape] = {
        "fc.weight": (hidden, count * wide),
        "norm.weight": (hidden,),
        "lm_head.weight": (draft, hidden),
        "midlayer.hidden_norm.weight": (hidden,),
        "midlayer.input_layernorm.weight": (hidden,),
        "midlayer.post_attention_layernorm.weight": (hidden,),
        "midlayer.mlp.gate_proj.weight": (middle, hidden),
        "midlayer.mlp.up_proj.weight": (middle, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, middle),
    }
    attention = _attention(layer, hidden, heads)
    if attention is None:
        return None
    for name, shape in attention.items():
        shapes[f"midlayer.self_attn.{name}.weight"] = shape
    if draft != vocab:
        shapes |= {"d2t": (draft,), "t2d": (vocab,)}
    if hidden != wide:
        shapes["embed_tokens.weight"] = (vocab, hidden)
    if config.get("norm_before_fc"):
        shapes["input_norm.weight"] = (count * wide,)
    if config.get("fc_norm"):
        shapes |= {f"fc_norm.{number}.weight": (wide,) for number in range(count)}
    return shapes


def _attention(layer: Mapping[str, Any], hidden: int, heads: int) -> dict[str, Shape] | None:
    rank = integer(layer, "kv_lora_rank")
    if rank is not None:
        nope, rope, value = (
            integer(layer, key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        )
        if nope is None or rope is None or value is None:
            return None
        shapes: dict[str, Shape] = {
            "kv_a_proj_with_mqa": (rank + rope, 2 * hidden),
            "kv_a_layernorm": (rank,),
            "kv_b_proj": (heads * (nope + value), rank),
            "o_proj": (hidden, heads * value),
        }
        query = integer(layer, "q_lora_rank")
        if query is None:
            return shapes | {"q_proj": (heads * (nope + rope), 2 * hidden)}
        return shapes | {
            "q_a_proj": (query, 2 * hidden),
            "q_a_layernorm": (query,),
            "q_b_proj": (heads * (nope + rope), query),
        }
    size = integer(layer, "head_dim") or hidden // heads
    kv = rules.number(layer, rules.KV_HEADS) or heads
    return {
        "q_proj": (heads * size, 2 * hidden),
        "k_proj": (kv * size, 2 * hidden),
        "v_proj": (kv * size, 2 * hidden),
        "o_proj": (hidden, heads * size),
    }


def _values(real: Mapping[str, Any], small: Mapping[str, Any], target: Twin) -> dict[int, int]:
    """Real size -> the twin's, for tensors that the layout does not know; the largest first."""
    pairs: dict[int, int] = {}
    for key, value in real.items():
        after = small.get(key)
        if type(value) is int and type(after) is int and value > 1 and after > 0:
            pairs.setdefault(value, after)
    before, wide = (rules.number(c, rules.HIDDEN) for c in (target.real, target.text))
    if before and wide:
        pairs[before] = wide
    return dict(sorted(pairs.items(), reverse=True))


def _by_bare_name(
    wide: Mapping[str, Shape], small: Mapping[str, Shape]
) -> dict[str, tuple[Shape, Shape]]:
    """The real shape and the twin's, by the name without that of the layer."""
    both = {name: (wide[name], small[name]) for name in reversed(list(wide)) if name in small}
    return {ONE_LAYER.sub("", name): shapes for name, shapes in both.items()}


def _shape(shape: Shape, known: tuple[Shape, Shape] | None, values: Mapping[int, int]) -> Shape:
    """The twin's shape of a tensor of the real files."""
    if known is not None and len(known[0]) == len(shape):
        return tuple(_size(*sizes) for sizes in zip(shape, *known, strict=True))
    return tuple(_by_value(size, values) for size in shape)


def _size(size: int, real: int, twin: int) -> int:
    """Right where the real one is right; else in the same proportion, and never right."""
    if size == real:
        return twin
    other = max(1, round(size * twin / real))
    return other if other != twin else twin + (1 if size > real else -1)


def _by_value(size: int, values: Mapping[int, int]) -> int:
    if size in values:
        return values[size]
    for real in values:
        if real >= 64 and size % real == 0:
            return size // real * values[real]
    return size
