"""`drafter`: the drafter's class after vLLM's rewriting is registered and taken by the proposer."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from vllm_eagle3_patches import registry
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates import proposer
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.findings import Finding, error, warning
from vllm_eagle3_patches.preflight.runner import V1
from vllm_eagle3_patches.sources import bases

CLASS = "drafter"


def check(context: Context) -> Iterator[Finding]:
    drafter = context.drafter
    if drafter.problem is not None:
        yield error(
            CLASS,
            f"vLLM {context.version} cannot read the drafter's config.json: {drafter.problem}",
            "take a drafter in a format this vLLM knows, or convert this one to the plain layout "
            "(a Llama config with `architectures` and `draft_vocab_size`)",
        )
    elif drafter.architecture is None:
        yield error(
            CLASS,
            "the drafter's config.json names no architecture",
            'add "architectures": ["LlamaForCausalLMEagle3"] to it, or the class it was made for',
        )
    elif drafter.site is None:
        yield _unregistered(context)
    else:
        yield from _refused(context)


def _unregistered(context: Context) -> Finding:
    drafter = context.drafter
    name = drafter.architecture or ""
    known = sorted(
        entry.architecture
        for entry in registry.read(context.sources).values()
        if entry.table == registry.SPECULATIVE and "agle3" in entry.architecture
    )
    steps = f"{drafter.original!r}" if drafter.original != name else f"{name!r}"
    if drafter.overridden not in (drafter.original, name):
        steps += f", which hf_config_override makes {drafter.overridden!r}"
    if drafter.original != name:
        steps += f", which vLLM looks up as {name!r},"
    detail = f"the drafter's architecture {steps} is not in the registry of vLLM {context.version}"
    if "MTP" in name:
        kind = drafter.raw.get("model_type")
        fix = (
            f'model_type {kind!r} marks an MTP model: write "model_type": "kimi_k2" into the '
            "drafter's config.json (vLLM reads it with the same config class and leaves the "
            "architecture alone)"
        )
        original = drafter.original or ""
        if original not in registry.read(context.sources):
            fix += f"; {original} needs a newer vLLM besides (0.18.0 brought MLA drafters)"
    elif name == "LlamaForCausalLMEagle3" and "Eagle3LlamaForCausalLM" in known:
        fix = 'write "architectures": ["LlamaForCausalLM"] into the drafter\'s config.json'
    else:
        close = get_close_matches(name, known, n=2, cutoff=0.85) or known
        fix = f"take a newer vLLM, or a drafter that this one has a class for: {', '.join(close)}"
    mapping = drafter.raw.get("auto_map")
    if isinstance(mapping, dict) and any(str(k).startswith("AutoModel") for k in mapping):
        return warning(CLASS, f"{detail}; auto_map may still name a class of its own", fix)
    return error(CLASS, detail, fix)


def _refused(context: Context) -> Iterator[Finding]:
    """Registered, but not of a class the V1 proposer's assertion names."""
    site = context.drafter.site
    try:
        allowed = proposer.find(context.sources).accepted
    except RefusedError:
        return
    assert site is not None
    if allowed is None or any(owner.name in allowed for owner in bases(context.sources, site)):
        return
    detail = (
        f"the registry has {site.name}, but the proposer asserts "
        f"isinstance(self.model, {' | '.join(sorted(allowed))})"
    )
    fix = "take a drafter of one of these classes, or a vLLM whose proposer takes this one"
    make = error if context.runners == (V1,) else warning
    yield make(CLASS, detail, fix)
