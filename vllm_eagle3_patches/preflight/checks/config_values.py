"""Values that no setting of this name can have: `"hidden_size": "x"`, a null vocabulary, 1e30.

An error where vLLM surely stops: a size that is no whole number goes into `torch.empty` or a
shape, a RoPE setting that is no object is asked for its keys, and Transformers looks a type's
name up in `torch`.  A warning where a version may pass over the value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.facts import LARGEST
from vllm_eagle3_patches.preflight.findings import Finding, error, warning

SHAPE, LENGTH, RUNTIME = "aux-shape", "length", "runtime"
NEEDED = ("hidden_size", "vocab_size", "intermediate_size", "num_attention_heads")
# Explicit null is as good as absent for these: each has a default made of other sizes.
OPTIONAL = ("num_key_value_heads", "head_dim", "draft_vocab_size", "target_hidden_size")
LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
COUNTS = ("num_attention_heads", "num_key_value_heads", "num_hidden_layers")
OF_THE_TARGET = ("hidden_size", "vocab_size", "num_hidden_layers", "num_attention_heads")
ROPE = ("rope_scaling", "rope_parameters")
ROTARY = "vllm/model_executor/layers/rotary_embedding/__init__.py"
# Names that vLLM renames before it looks (`patch_rope_parameters`), or gives a class of its own.
ROPE_TYPES = frozenset({"default", "su", "longrope", "mrope", "linear", "dynamic", "yarn"})
LAYERS_COUNTED = re.compile(r"range\([^)]*num_hidden_layers")
DTYPES = frozenset(
    {
        *("auto", "half", "float", "double", "bfloat16", "float16", "float32", "float64"),
        *("int", "long", "short", "int4", "int8", "int16", "int32", "int64", "bool"),
        *("uint4", "uint8", "uint16", "uint32", "uint64", "cfloat", "complex64", "complex128"),
        *("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"),
        *("float8_e8m0fnu", "float4_e2m1fn_x2", "qint8", "quint8", "qint32", "complex32"),
    }
)
FIX = "fetch the config.json that belongs to this checkpoint, or correct the value"


def check(context: Context) -> Iterator[Finding]:
    drafter = context.drafter.config
    yield from _sizes(context, drafter)
    yield from _length("the drafter", drafter)
    yield from _numbers(drafter)
    target = context.target.text
    for key in OF_THE_TARGET:
        yield from _target_size(key, target)
    yield from _length("the target", target)
    for whose, config in (("the drafter", drafter), ("the target", target)):
        yield from _rope(context, whose, config)
        yield from _dtype(whose, config)


def _short(value: object) -> str:
    text = json.dumps(value) if value is None or isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _said(whose: str, key: str, value: object, wanted: str) -> str:
    return f"{whose}'s config.json has `{key}: {_short(value)}`; it has to be {wanted}"


def _is_size(value: object) -> bool:
    return type(value) is int and 0 < value <= LARGEST


def _sizes(context: Context, config: Mapping[str, Any]) -> Iterator[Finding]:
    mla = context.drafter.is_mla
    site = context.drafter.site
    source = snippets.text(context.sources, site.path) if site else ""
    for key in (*NEEDED, *OPTIONAL, *LATENT, "num_hidden_layers"):
        if key not in config or _is_size(config[key]):
            continue
        value = config[key]
        if value is None and key not in NEEDED:
            continue
        unread = (
            (key in LATENT and not mla)
            or (key in ("head_dim", "num_key_value_heads") and mla)
            or (key in ("draft_vocab_size", "target_hidden_size") and key not in source)
            or (key == "num_hidden_layers" and not _counted(source, value))
        )
        one = value is True and key in COUNTS  # Python's True is 1
        make = warning if unread or one else error
        yield make(SHAPE, _said("the drafter", key, value, "a whole number above 0"), FIX)


def _counted(source: str, value: object) -> bool:
    """Whether this number of layers stops the class; `range(-1)` and `range(0)` do not."""
    harmless = type(value) is int and value <= 0
    return LAYERS_COUNTED.search(source) is not None and not harmless and value is not False


def _target_size(key: str, config: Mapping[str, Any]) -> Iterator[Finding]:
    if key not in config or _is_size(config[key]):
        return
    value = config[key]
    lists = isinstance(value, list) and key == "num_attention_heads"  # one for each layer
    if lists:
        return
    make = warning if value is None or isinstance(value, bool) else error
    yield make(SHAPE, _said("the target", key, value, "a whole number above 0"), FIX)


def _length(whose: str, config: Mapping[str, Any]) -> Iterator[Finding]:
    key = "max_position_embeddings"
    value = config.get(key)
    if key not in config or _is_size(value) or (value is None and whose == "the target"):
        return
    make = error if isinstance(value, (str, list, dict)) else warning
    yield make(LENGTH, _said(whose, key, value, "a whole number above 0"), FIX)


def _numbers(config: Mapping[str, Any]) -> Iterator[Finding]:
    value = config.get("rms_norm_eps", 1e-5)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        make = error if isinstance(value, (str, list, dict)) else warning
        yield make(RUNTIME, _said("the drafter", "rms_norm_eps", value, "a number"), FIX)


def _rope(context: Context, whose: str, config: Mapping[str, Any]) -> Iterator[Finding]:
    newer = config.get("rope_parameters")
    theta = config.get("rope_theta")
    if theta is not None and (isinstance(theta, bool) or not isinstance(theta, (int, float))):
        unread = isinstance(newer, dict) and "rope_theta" in newer
        yield (warning if unread else error)(
            LENGTH, _said(whose, "rope_theta", theta, "a number"), FIX
        )
    for key in ROPE:
        value = config.get(key)
        if value is None:
            continue
        if not isinstance(value, dict):
            wanted = 'an object such as {"rope_type": "yarn", "factor": 4.0}, or null'
            yield (error if value else warning)(LENGTH, _said(whose, key, value, wanted), FIX)
        else:
            yield from _rope_settings(context, whose, key, value)


def _rope_settings(
    context: Context, whose: str, key: str, settings: Mapping[str, Any]
) -> Iterator[Finding]:
    kind = settings.get("rope_type", settings.get("type"))
    if kind is not None and not _is_rope_type(context, kind):
        # MLA classes put a type of their own in its place.
        sure = whose == "the drafter" and not context.drafter.is_mla
        yield (error if sure else warning)(
            LENGTH,
            f"{whose}'s config.json has RoPE of type {_short(kind)} (`{key}`), which is none that "
            f"vLLM {context.version} knows ({ROTARY})",
            FIX,
        )
    factor = settings.get("factor")
    if factor is not None and (isinstance(factor, bool) or not isinstance(factor, (int, float))):
        make = error if kind in ("linear", "dynamic", "yarn", "llama3") else warning
        yield make(LENGTH, _said(whose, f"{key}.factor", factor, "a number"), FIX)


def _is_rope_type(context: Context, kind: object) -> bool:
    if not isinstance(kind, str):
        return False
    source = snippets.text(context.sources, ROTARY)
    return not source or kind in ROPE_TYPES or f'"{kind}"' in source or f"'{kind}'" in source


def _dtype(whose: str, config: Mapping[str, Any]) -> Iterator[Finding]:
    for key in ("torch_dtype", "dtype"):
        value = config.get(key)
        if value is None or isinstance(value, dict):  # a type for each part of the model
            continue
        if isinstance(value, str) and value.removeprefix("torch.") in DTYPES:
            continue
        make = error if isinstance(value, str) and not value.startswith("torch.") else warning
        yield make(RUNTIME, _said(whose, key, value, "the name of a torch type"), FIX)
