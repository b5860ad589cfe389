"""What stands in a config.json where a size, a list of names or an object has to be.

A twin is made by arithmetic on these values, and vLLM sizes its tensors by them: one that is no
size is refused here, by its name, before it is an error of Python's in a child of the engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.preflight.aux import KEY, NESTED
from vllm_eagle3_patches.preflight.facts import LARGEST as MOST
from vllm_eagle3_patches.preflight.facts import TEXT
from vllm_eagle3_patches.preflight.safetensors import Tensor
from vllm_eagle3_patches.rehearsal import layers, rules

LAYER = "transformer_layer_config"  # of the speculators format
LARGEST = 2**20  # of any width or number of things; an MLP of Llama-3.1-405B is 53248 wide
VOCABULARY = 2**21  # Gemma-3's is 262208
LAYERS = 1024  # the deepest merge published has 315
IDS = 64  # aux layers of one drafter; published ones take three
ENTRIES, ALL = 2**16, 2**18  # of one list or object, and of a whole config.json
DIMENSIONS = 8  # of a tensor
DEEPEST = 16  # objects and lists within one another

Names = tuple[str, ...]
DRAFT = ("draft_vocab_size", "target_hidden_size", "target_hidden_dim")
# From 1 on; null is as good as absent.
SIZES = frozenset(
    (*layers.COUNTS, *rules.HIDDEN, "embed_dim", *rules.HEADS, *rules.KV_HEADS, "head_dim",
     "vocab_size", *DRAFT)
)  # fmt: skip
# From 0 on: there may be none of them.
NUMBERS = frozenset((*rules.EXPERTS, *rules.TOP_K, *rules.GROUPS, *rules.TOP_GROUPS, *rules.NEXT_N))
NUMBERS_END = (*rules.MIDDLE, "_rank")
# With one of these in a field's name the heads are not the hidden size over their number.
HEAD_SIZES = ("head_dim", "head_size", "size_per_head", "kv_channels")
FIX = "fetch the config.json that belongs to this model, or correct the value"


def target(config: Mapping[str, Any], where: object) -> None:
    """A target's config.json; `where` is its path.

    Raises:
        RefusedError: a value that is not what its name says, or a file no model has.
    """
    _extent(config, where)
    prefix, part = "", config
    while True:
        _names(part, prefix, where)
        _objects(part, (*TEXT, *rules.VISION), prefix, where)
        for key in rules.VISION:
            if isinstance(part.get(key), dict):
                _tower(part[key], f"{prefix}{key}.", where)
        inner = next((key for key in TEXT if isinstance(part.get(key), dict)), None)
        if inner is None:
            break
        prefix, part = f"{prefix}{inner}.", part[inner]
    _language_model(part, prefix, where)
    for names in (layers.COUNTS, rules.HIDDEN):
        if rules.first(part, names) is None:
            raise RefusedError(
                "config.json does not say how many layers there are, or how wide they are: no "
                f"`{prefix}{names[0]}`, nor one of {', '.join(names[1:])}",
                where=where,
                next=FIX,
            )


def drafter(raw: Mapping[str, Any], where: object) -> None:
    """A drafter's config.json; `where` is its path.

    Raises:
        RefusedError: a value that is not what its name says, or a file no model has.
    """
    _extent(raw, where)
    _names(raw, "", where)
    _objects(raw, (LAYER, NESTED, "speculators_config"), "", where)
    _language_model(raw, "", where)
    if isinstance(raw.get(LAYER), dict):
        _names(raw[LAYER], f"{LAYER}.", where)
        _language_model(raw[LAYER], f"{LAYER}.", where)
    for prefix, holder in (("", raw), (f"{NESTED}.", raw.get(NESTED) or {})):
        for key in (KEY, "layer_ids"):
            value = holder.get(key)
            if value in (None, [], {}, ""):
                continue
            if not isinstance(value, list) or not all(map(is_id, value)):
                raise _refused(f"{prefix}{key}", value, "a list of layer numbers", where)
            if len(value) > IDS:
                what = f"`{prefix}{key}` has {len(value)} layer numbers; {IDS} are the most here"
                raise RefusedError(what, where=where, next=FIX)


def tensors(found: Mapping[str, Tensor], where: object) -> None:
    """The shapes that the headers of a drafter's files tell; `where` is its config.json's path.

    Raises:
        RefusedError: one that no tensor has.
    """
    for name, tensor in found.items():
        if len(tensor.shape) > DIMENSIONS or not all(0 <= n <= MOST for n in tensor.shape):
            sizes = [short(size) for size in tensor.shape[:DIMENSIONS]]
            what = f"the tensor `{shown(name)}` has the shape [{', '.join(sizes)}]"
            raise RefusedError(what, where=where, next="fetch the drafter's files again")


def is_id(value: object) -> bool:
    """A layer's number; 2.0 equals 2 where vLLM looks it up."""
    return type(value) is int or (type(value) is float and value.is_integer())


def short(value: object) -> str:
    """A value as JSON has it, 60 characters at most."""
    if isinstance(value, (list, dict)) and len(value) > 60:
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def shown(name: str) -> str:
    """A field's or tensor's name, which may hold anything, fit for a line of a terminal."""
    return short(name).strip('"')


def _refused(name: str, value: object, wanted: str, where: object) -> RefusedError:
    what = f"`{shown(name)}` is {short(value)}; it has to be {wanted}"
    return RefusedError(what, where=where, next=FIX)


def _extent(config: Mapping[str, Any], where: object) -> None:
    """Refuses what would take long to copy, or more stack than Python has."""
    total = 0
    left: list[tuple[str, Any, int]] = [("config.json", config, 1)]
    while left:
        name, value, depth = left.pop()
        total += len(value)
        found = None
        if depth > DEEPEST:
            found = f"objects and lists {depth} deep within one another, from `{name}` on"
        elif len(value) > ENTRIES:
            found = f"{len(value)} values under `{name}`"
        elif total > ALL:
            found = f"more than {ALL} values in all"
        if found:
            raise RefusedError(f"config.json has {found}; no model's has", where=where, next=FIX)
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(inner, (dict, list)):
                inside = shown(key) if isinstance(key, str) else name
                left.append((inside, inner, depth + 1))


def _names(config: Mapping[str, Any], prefix: str, where: object) -> None:
    value = config.get("architectures")
    if value is not None and not (
        isinstance(value, list) and all(isinstance(name, str) for name in value)
    ):
        wanted = 'a list of class names, such as ["LlamaForCausalLM"]'
        raise _refused(f"{prefix}architectures", value, wanted, where)
    value = config.get("model_type")
    if value is not None and not isinstance(value, str):
        raise _refused(f"{prefix}model_type", value, "a name", where)


def _objects(config: Mapping[str, Any], keys: Names, prefix: str, where: object) -> None:
    for key in keys:
        value = config.get(key)
        if value is not None and not isinstance(value, dict):
            raise _refused(f"{prefix}{key}", value, "an object", where)


def _language_model(config: Mapping[str, Any], prefix: str, where: object) -> None:
    for key, value in config.items():
        _number(key, key, value, prefix, where, one=key in SIZES)
    pairs: list[tuple[Names, Names]] = [(rules.EXPERTS, rules.GROUPS)]
    if "kv_lora_rank" not in config:  # MLA has one key-value head, whatever it is called
        pairs.append((rules.HEADS, rules.KV_HEADS))
    _width(config, rules.HIDDEN, prefix, where)
    for many, few in pairs:
        _multiple(config, many, few, prefix, where)


def _tower(config: Mapping[str, Any], prefix: str, where: object) -> None:
    """A vision or audio tower, whose stages may differ in width and depth."""
    for key, value in config.items():
        _number(key, key.removeprefix(rules.VISION_PREFIX), value, prefix, where, one=False)
    plain = {key.removeprefix(rules.VISION_PREFIX): value for key, value in config.items()}
    _width(plain, ("embed_dim", *rules.HIDDEN), prefix, where)


def _number(key: str, bare: str, value: object, prefix: str, where: object, *, one: bool) -> None:
    """One number from 1 or 0 on, or a list of them where it may differ from layer to layer."""
    if bare not in SIZES and bare not in NUMBERS and not bare.endswith(NUMBERS_END):
        return
    least = 1 if bare in SIZES else 0
    most = LARGEST
    if bare in layers.COUNTS:
        most = LAYERS
    elif "vocab" in bare:
        most = VOCABULARY
    for number in value if isinstance(value, list) and not one else (value,):
        if number is not None and not (type(number) is int and least <= number <= most):
            raise _refused(
                f"{prefix}{key}", number, f"a whole number from {least} to {most}", where
            )


def _width(config: Mapping[str, Any], names: Names, prefix: str, where: object) -> None:
    own = any(part in key for key in config if config[key] is not None for part in HEAD_SIZES)
    one, heads = rules.first(config, names), rules.first(config, rules.HEADS)
    if own and one is not None and heads is not None and config[one] < config[heads]:
        what = f"`{prefix}{one}` {config[one]} is less than `{prefix}{heads}` {config[heads]}"
        raise RefusedError(what, where=where, next=FIX)
    if not own:
        _multiple(config, names, rules.HEADS, prefix, where, ", and no head_dim is named")


def _multiple(
    config: Mapping[str, Any],
    many: Names,
    few: Names,
    prefix: str,
    where: object,
    why: str = "",
) -> None:
    one, other = rules.first(config, many), rules.first(config, few)
    if one is not None and other is not None and config[one] % config[other]:
        what = f"`{prefix}{one}` {config[one]} is no multiple of `{prefix}{other}` {config[other]}"
        raise RefusedError(what + why, where=where, next=FIX)
