"""Whether a target with recurrent state can be rolled back when draft tokens are rejected.

A rejected draft token must leave no trace in a state-space layer.  A release can do that for a
kind of layer when the layer itself picks its state by `num_accepted_tokens`, which the attention
metadata then carries: gated delta nets in 0.11.2, Mamba 2 too in 0.17.1, short convolutions and
some linear attention in 0.32.0, Mamba 1 in none up to 0.33.0 (its backend fills the number in,
but `MambaMixer` does not read it).
"""

from __future__ import annotations

import ast

from vllm_eagle3_patches.sources import ClassSite, Sources, bases, find_classes, walk
from vllm_eagle3_patches.structure import Structure

ACCEPTED = "num_accepted_tokens"
KIND = "mamba_type"  # the property every recurrent layer must have (MambaBase)


def refusal(sources: Sources, structure: Structure, decoder: ClassSite) -> str | None:
    """Why the target's state cannot be rolled back, or None if it can, or has none.

    The registered class or that of its language model may bear the mark; `decoder` is the class
    that runs the layers.
    """
    classes = [cls for cls in (structure.top, structure.causal) if cls is not None]
    marks = {site.name for cls in classes for site in bases(sources, cls)}
    if "IsAttentionFree" in marks:
        return "a state-space model without attention has no per-token state to draft from"
    if not marks & {"IsHybrid", "HasInnerState"}:
        return None
    mixers = _mixers(sources, decoder)
    if not mixers:
        return "it keeps recurrent state of a kind this tool does not know"
    for mixer in mixers:
        if not any(_reads(owner.node) for owner in bases(sources, mixer)):
            return f"this vLLM cannot roll back the state of {mixer.name} when a draft is rejected"
    return None


def _mixers(sources: Sources, decoder: ClassSite) -> list[ClassSite]:
    """The recurrent layers that the decoder's file names, in the order of their names."""
    names = {n.id for n in walk(sources.tree(decoder.path)) if isinstance(n, ast.Name)}
    return [
        site
        for name in sorted(names)
        if name != "MambaBase"
        for site in find_classes(sources, decoder.path, name)
        if any(o.method(KIND) for o in bases(sources, site) if o.name != "MambaBase")
    ]


def _reads(node: ast.ClassDef) -> bool:
    return any(
        ACCEPTED in (getattr(n, "attr", None), getattr(n, "id", None), getattr(n, "value", None))
        for n in ast.walk(node)
    )
