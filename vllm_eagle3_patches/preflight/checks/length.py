"""`length`: positions the drafter was made for, against those the server will ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.drafter import SPECULATIVE
from vllm_eagle3_patches.preflight.facts import derived_length, rope, rope_theta, rope_type
from vllm_eagle3_patches.preflight.findings import Finding, error, warning
from vllm_eagle3_patches.preflight.runner import V1

CLASS = "length"
MROPE_OF_TARGET = "self.uses_mrope = self.vllm_config.model_config.uses_mrope"
ALLOW = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"
RAISES = "_maybe_override_draft_max_position_embeddings"


def check(context: Context) -> Iterator[Finding]:
    yield from _speculative_length(context)
    yield from _positions(context)
    yield from _rope(context)
    yield from _mrope(context)


def _speculative_length(context: Context) -> Iterator[Finding]:
    asked = context.speculative.get("max_model_len")
    if not isinstance(asked, int):
        return
    limit = context.max_model_len
    if limit is not None and asked > limit:
        yield error(
            CLASS,
            f"speculative_config.max_model_len {asked} is larger than the target's {limit}",
            f"lower it to {limit}, or leave it out",
        )
        return
    own = derived_length(context.drafter.config)
    allowed = context.serve.environment.get(ALLOW, os.environ.get(ALLOW, "0")) != "0"
    if own is not None and asked > own and not allowed:
        yield error(
            CLASS,
            f"speculative_config.max_model_len {asked} is larger than the drafter's {own} "
            "(max_position_embeddings)",
            f"lower it to {own}, or leave it out",
        )


def _positions(context: Context) -> Iterator[Finding]:
    own, wanted = derived_length(context.drafter.config), context.max_model_len
    if own is None or wanted is None or own >= wanted:
        return
    raised = any(RAISES in snippets.text(context.sources, path) for path in SPECULATIVE)
    if raised:
        detail = (
            f"the drafter was made for {own} positions, the server takes {wanted}; vLLM "
            f"{context.version} raises the drafter's limit, and past {own} it drafts untrained"
        )
        fix = "expect lower acceptance on long sequences"
    else:
        detail = (
            f"the drafter's rotary table has {own} positions, the server takes sequences of "
            f"{wanted}, and vLLM {context.version} does not raise the drafter's limit: the first "
            "longer one reads past the table's end (a device-side assert, or wrong values)"
        )
        fix = (
            f"--max-model-len {own}, or raise max_position_embeddings in the drafter's config.json "
            f"to {wanted}"
        )
    yield warning(CLASS, detail, fix)


def _rope(context: Context) -> Iterator[Finding]:
    config, target = context.drafter.config, context.target.text
    mine, theirs = rope_theta(config), rope_theta(target)
    if mine is not None and theirs is not None and mine != theirs:
        yield warning(
            CLASS,
            f"the drafter's rope_theta is {mine:g}, the target's {theirs:g}",
            "right only if the drafter was trained with its own; else write the target's",
        )
    kinds = rope_type(config), rope_type(target)
    if mine is not None and theirs is not None and kinds[0] != kinds[1] and rope(config):
        yield warning(
            CLASS,
            f"the drafter's RoPE is of type {kinds[0]!r}, the target's of {kinds[1]!r}",
            "right only if the drafter was trained with its own",
        )


def _mrope(context: Context) -> Iterator[Finding]:
    """0.11.1-0.14.1: the drafter gets M-RoPE positions because the target has them."""
    if not context.target.uses_mrope or "mrope_section" in rope(context.drafter.config):
        return
    text = snippets.text(context.sources, "vllm/v1/spec_decode/eagle.py")
    if V1 in context.runners and MROPE_OF_TARGET in text:
        yield warning(
            "runtime",
            f"the target has M-RoPE and the drafter has not; the proposer of vLLM "
            f"{context.version} hands the drafter three positions for each token all the same",
            "take a drafter with `mrope_section` in its rope_scaling, or vLLM 0.15.0 or newer",
        )
