"""`kv-cache`: the drafter's key-value cache beside the target's."""

from __future__ import annotations

import os
from collections.abc import Iterator

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates import proposer
from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.facts import head_dim, integer, kv_heads
from vllm_eagle3_patches.preflight.findings import Finding, error, warning
from vllm_eagle3_patches.preflight.speculative import fields

CLASS = "kv-cache"
NO_MLA = "VLLM_MLA_DISABLE"  # the target then has ordinary attention, padded
INTERFACE = "vllm/v1/kv_cache_interface.py"


def check(context: Context) -> Iterator[Finding]:
    if context.drafter.site is None:
        return
    yield from _dtype(context)
    yield from _page_size(context)
    yield from _groups(context)


def _dtype(context: Context) -> Iterator[Finding]:
    """A KV dtype for MLA is inherited by a drafter with ordinary attention."""
    asked = context.serve.options.get("kv-cache-dtype", "auto").lower()
    if asked in ("auto", "bfloat16", "float16") or context.speculative.get("kv_cache_dtype"):
        return
    if context.drafter.is_mla or not context.target.is_mla:
        return
    fix = (
        '"kv_cache_dtype": "auto" in the speculative config'
        if "kv_cache_dtype" in fields(context.sources)
        else "leave --kv-cache-dtype out, or take a drafter with MLA"
    )
    yield warning(
        CLASS,
        f"the drafter's ordinary attention inherits --kv-cache-dtype {asked}, chosen for an MLA "
        "target; not every backend takes it, and without scales in the checkpoint it costs "
        "acceptance",
        fix,
    )


def _page(config: dict[str, object], tensor_parallel: int) -> int | None:
    """Values a token takes in one layer's cache on one rank."""
    rank, rope = integer(config, "kv_lora_rank"), integer(config, "qk_rope_head_dim")
    if rank is not None:
        return None if rope is None else rank + rope
    heads, size = kv_heads(config), head_dim(config)
    if heads is None or size is None:
        return None
    return 2 * max(1, heads // tensor_parallel) * size


def _page_size(context: Context) -> Iterator[Finding]:
    """To 0.10.2 all layers must have the same page size, or the same kind of cache."""
    if "UniformTypeKVCacheSpecs" in snippets.text(context.sources, INTERFACE):
        return
    if not context.sources.exists(INTERFACE):
        return
    if context.serve.environment.get(NO_MLA, os.environ.get(NO_MLA, "0")) != "0":
        return
    ranks = context.serve.tensor_parallel
    mine = _page(dict(context.drafter.config), ranks)
    theirs = _page(dict(context.target.text), ranks)
    if mine is None or theirs is None or mine == theirs:
        return
    text = context.target.text
    hybrid = text.get("sliding_window") or text.get("layer_types")
    yield (warning if hybrid else error)(
        CLASS,
        f"a token takes {theirs} values in a layer of the target's KV cache and {mine} in the "
        f"drafter's (tensor parallel {ranks}); vLLM {context.version} needs them equal and raises "
        "NotImplementedError",
        "take vLLM 0.11.0 or newer, or a drafter with the target's KV heads and head_dim",
    )


def _groups(context: Context) -> Iterator[Finding]:
    """V1 asserts that all layers of the drafter are in one group of the KV cache."""
    kinds = context.drafter.config.get("layer_types")
    layers = integer(context.drafter.config, "num_hidden_layers") or 1
    if layers < 2 or not isinstance(kinds, list) or len(set(map(str, kinds[:layers]))) < 2:
        return
    try:
        path = proposer.find(context.sources).path
    except RefusedError:
        return
    if "should belong to the same kv cache group" not in snippets.text(context.sources, path):
        return
    yield warning(
        CLASS,
        f"the drafter has {layers} layers of kinds {', '.join(sorted(set(map(str, kinds))))}; the "
        "proposer asserts that all of them are in the same KV cache group",
        "--disable-hybrid-kv-cache-manager keeps all layers in one group",
    )
