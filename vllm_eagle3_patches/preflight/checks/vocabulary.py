"""`aux-shape`: the drafter's vocabulary, its head and its map to the target's ids agree."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.findings import Finding, error, warning

CLASS = "aux-shape"
D2T = ("d2t", "draft_id_to_target_id")


def check(context: Context) -> Iterator[Finding]:
    yield from _unset(context)
    yield from _head(context)
    yield from _map(context)
    yield from _against_target(context)


def _unset(context: Context) -> Iterator[Finding]:
    """To 0.10.2 the class reads `config.draft_vocab_size` without a default."""
    site = context.drafter.site
    if site is None or "draft_vocab_size" in context.drafter.config:
        return
    source = snippets.text(context.sources, site.path)
    if "config.draft_vocab_size" in source and '"draft_vocab_size", None' not in source:
        size = context.drafter.config.get("vocab_size")
        yield error(
            CLASS,
            f"the drafter's config.json has no draft_vocab_size, and {site.name} of vLLM "
            f"{context.version} has no default for it",
            f'write "draft_vocab_size": {size} (the rows of lm_head.weight) into it',
        )


def _head(context: Context) -> Iterator[Finding]:
    size = context.built.draft_vocab
    head = context.tensor("lm_head.weight")
    if size is None or head is None or len(head.shape) != 2:
        return
    if head.shape[0] != size:
        named = context.drafter.config.get("draft_vocab_size")
        yield error(
            CLASS,
            f"lm_head.weight has {head.shape[0]} rows; the config makes a head of {size} "
            f"(draft_vocab_size {named}, vocab_size {context.drafter.config.get('vocab_size')})",
            f'write "draft_vocab_size": {head.shape[0]} into the drafter\'s config.json',
        )


def _map(context: Context) -> Iterator[Finding]:
    size = context.built.draft_vocab
    target = context.target.vocab_size
    d2t = context.tensor(*D2T)
    if size is None:
        return
    if d2t is not None and d2t.shape != (size,):
        yield error(
            CLASS,
            f"d2t has shape {d2t}, draft_vocab_size is {size}",
            f'write "draft_vocab_size": {d2t.shape[0] if d2t.shape else 0} into the drafter\'s '
            "config.json, if lm_head.weight has as many rows",
        )
    if d2t is not None and context.built.maps_ids is False:
        yield error(
            CLASS,
            f"the drafter has d2t, but its vocabulary of {size} is the target's, and this vLLM "
            "makes no map then: `There is no module or parameter named 'draft_id_to_target_id'`",
            "take d2t out of the checkpoint (it maps each id to itself)",
        )
    if d2t is None and target is not None and size != target and context.drafter.weights.tensors:
        yield warning(
            CLASS,
            f"draft_vocab_size is {size}, the target has {target} ids, and the checkpoint has no "
            "d2t: vLLM takes every draft id for a target id",
            "fetch the checkpoint with its d2t tensor",
        )
    t2d = context.tensor("t2d")
    if t2d is not None and target is not None and t2d.shape != (target,):
        yield warning(
            CLASS,
            f"t2d has shape {t2d}, the target has {target} ids: the head was made for another "
            "vocabulary, or for one without padding",
            "check that the drafter is the one made for this target",
        )


def _against_target(context: Context) -> Iterator[Finding]:
    own, target = context.drafter.config.get("vocab_size"), context.target.vocab_size
    if isinstance(own, int) and target is not None and own != target:
        yield warning(
            CLASS,
            f"the drafter's vocab_size is {own}, the target's {target}: draft logits are spread "
            "over the drafter's, and ids beyond it cannot be drafted or embedded",
            "check that the drafter is the one made for this target",
        )
