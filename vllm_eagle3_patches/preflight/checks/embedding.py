"""`weight-sharing`: where the drafter's embedding and head come from under this version."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates import proposer
from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.facts import integer
from vllm_eagle3_patches.preflight.findings import Finding, error, warning
from vllm_eagle3_patches.preflight.runner import V1

CLASS = "weight-sharing"
EMBEDDING = ("embed_tokens.weight", "model.embed_tokens.weight")


def check(context: Context) -> Iterator[Finding]:
    if not context.drafter.weights.tensors or context.drafter.site is None:
        return
    try:
        loader = snippets.text(context.sources, proposer.find(context.sources).path)
    except RefusedError:
        return
    yield from _embedding(context, loader)
    yield from _overridden(context, loader)
    yield from _head(context, loader)


def _embedding(context: Context, loader: str) -> Iterator[Finding]:
    own = context.tensor(*EMBEDDING)
    config, built = context.drafter.config, context.built
    hidden = integer(config, "hidden_size")
    if own is not None:
        wanted = (built.vocab, hidden)
        if len(own.shape) == 2 and any(
            w is not None and w != n for w, n in zip(wanted, own.shape, strict=True)
        ):
            yield error(
                "aux-shape",
                f"embed_tokens.weight is {own}, the config makes it [{wanted[0]}, {wanted[1]}]",
                "correct vocab_size and hidden_size in the drafter's config.json",
            )
        return
    if context.serve.pipeline_parallel > 1:
        yield warning(
            CLASS,
            "the drafter has no embed_tokens, and with pipeline parallelism the target's is not "
            "shared: the drafter's stays uninitialised",
            "serve without --pipeline-parallel-size, or take a drafter with its own embedding",
        )
    target = context.target.hidden_size
    if hidden is None or target is None or hidden == target:
        return
    # From 0.11.1 a drafter without its own embedding gets the target's; 0.27.0 looks at widths.
    shares_blindly = "has_own_embed_tokens" in loader and "draft_dim" not in loader
    make = error if shares_blindly and context.runners == (V1,) else warning
    yield make(
        CLASS,
        f"the drafter has no embed_tokens and a hidden size of {hidden}, the target's is {target}: "
        "the target's embedding does not fit it",
        "fetch the checkpoint with its own embed_tokens.weight",
    )


def _overridden(context: Context, loader: str) -> Iterator[Finding]:
    """To 0.11.0 the target's weights replace the drafter's own ones of the same shape."""
    own = context.tensor(*EMBEDDING)
    shape = (context.target.vocab_size, context.target.hidden_size)
    parts = []
    if own is not None and "has_own_embed_tokens" not in loader and own.shape == shape:
        parts.append("embed_tokens")
    head = context.tensor("lm_head.weight")
    replaces = "shares the same lm_head" in loader and "has_own_lm_head" not in loader
    if head is not None and replaces and head.shape == shape:
        parts.append("lm_head")
    if parts:
        yield warning(
            CLASS,
            f"vLLM {context.version} puts the target's {' and '.join(parts)} in the place of the "
            "drafter's own, which has the same shape (PR 28549 ended this in 0.11.1)",
            "nothing to do where both are equal; else take vLLM 0.11.1 or newer",
        )


def _head(context: Context, loader: str) -> Iterator[Finding]:
    """A drafter without an lm_head: to 0.10.2 it gets none, later the target's."""
    if context.has_tensor("lm_head") is not False:
        return
    size, target = context.built.draft_vocab, context.target.vocab_size
    if "has_own_lm_head" in loader and size is not None and target is not None and size != target:
        # Seen on 0.32.0: it starts; LogitsProcessor cuts the target's logits to draft_vocab_size.
        yield warning(
            CLASS,
            f"the checkpoint has no lm_head: vLLM puts the target's in its place and takes the "
            f"first {size} of its {target} rows for the draft ids",
            "fetch the whole checkpoint; a head for fewer ids has its own lm_head.weight",
        )
    elif "has_own_lm_head" not in loader and "shares the same lm_head" not in loader:
        yield warning(
            CLASS,
            f"the drafter has no lm_head, and vLLM {context.version} gives an EAGLE-3 drafter "
            "none: it drafts with uninitialised memory",
            "take a drafter with its own lm_head.weight, or vLLM 0.11.0 or newer",
        )
