"""`aux-shape`: the drafter's layer has the sizes its config.json says (heads, head_dim, MLP)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.facts import head_dim, integer, kv_heads
from vllm_eagle3_patches.preflight.findings import Finding, error

CLASS = "aux-shape"
Shape = tuple[int | None, int | None]


def _common(config: Mapping[str, Any]) -> dict[str, Shape]:
    hidden, middle = integer(config, "hidden_size"), integer(config, "intermediate_size")
    return {
        "mlp.gate_proj": (middle, hidden),
        "mlp.up_proj": (middle, hidden),
        "mlp.down_proj": (hidden, middle),
    }


def _times(*factors: int | None) -> int | None:
    product = 1
    for factor in factors:
        if factor is None:
            return None
        product *= factor
    return product


def _plus(*terms: int | None) -> int | None:
    return None if None in terms else sum(t for t in terms if t is not None)


def _grouped(config: Mapping[str, Any]) -> dict[str, Shape]:
    hidden, size = integer(config, "hidden_size"), head_dim(config)
    heads, kv = integer(config, "num_attention_heads"), kv_heads(config)
    # The first layer takes the token's embedding and the hidden state, side by side.
    double = _times(2, hidden)
    return {
        "self_attn.q_proj": (_times(heads, size), double),
        "self_attn.k_proj": (_times(kv, size), double),
        "self_attn.v_proj": (_times(kv, size), double),
        "self_attn.o_proj": (hidden, _times(heads, size)),
    }


def _latent(config: Mapping[str, Any]) -> dict[str, Shape]:
    heads, double = (
        integer(config, "num_attention_heads"),
        _times(2, integer(config, "hidden_size")),
    )
    rank, q_rank = integer(config, "kv_lora_rank"), integer(config, "q_lora_rank")
    nope, rope = integer(config, "qk_nope_head_dim"), integer(config, "qk_rope_head_dim")
    value = integer(config, "v_head_dim")
    return {
        "self_attn.q_a_proj": (q_rank, double),
        "self_attn.q_b_proj": (_times(heads, _plus(nope, rope)), q_rank),
        "self_attn.kv_a_proj_with_mqa": (_plus(rank, rope), double),
        "self_attn.kv_b_proj": (_times(heads, _plus(nope, value)), rank),
        "self_attn.o_proj": (integer(config, "hidden_size"), _times(heads, value)),
    }


def check(context: Context) -> Iterator[Finding]:
    config = context.drafter.config
    if context.drafter.site is None:
        return
    attention = _latent(config) if context.drafter.is_mla else _grouped(config)
    wrong = []
    for module, wanted in {**attention, **_common(config)}.items():
        tensor = context.tensor(f"midlayer.{module}.weight", f"layers.0.{module}.weight")
        if tensor is None or len(tensor.shape) != 2 or tensor.dtype[:1] not in "BF":
            continue
        if any(w is not None and w != n for w, n in zip(wanted, tensor.shape, strict=True)):
            shape = ", ".join("?" if w is None else str(w) for w in wanted)
            wrong.append(f"{module}.weight is {tensor}, the config makes it [{shape}]")
    if not wrong:
        return
    keys = (
        "num_attention_heads, the q/kv ranks and head dimensions"
        if context.drafter.is_mla
        else f"num_attention_heads, num_key_value_heads and head_dim (now {head_dim(config)})"
    )
    yield error(
        CLASS,
        "; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if wrong[3:] else ""),
        f"correct {keys}, hidden_size and intermediate_size in the drafter's config.json, or "
        "fetch the config.json that belongs to this checkpoint",
    )
