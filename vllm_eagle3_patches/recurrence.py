"""Whether a target with recurrent state can be rolled back when draft tokens are rejected.

A rejected draft token must leave no trace in a state-space layer.  A release can do that for a
kind of layer when the metadata builder of that kind's attention backend takes
`num_accepted_tokens` (mamba 2 and gated delta nets first, the others later).
"""

from __future__ import annotations

import ast

from vllm_eagle3_patches.sources import ClassSite, Sources, bases

# Class of the mixer -> the backend whose builder must know accepted tokens.
BACKENDS = {
    "MambaMixer": ("mamba1_attn", "mamba_attn"),
    "MambaMixer2": ("mamba2_attn", "mamba_attn"),
    "ShortConv": ("short_conv_attn",),
    "MiniMaxText01LinearAttention": ("linear_attn",),
    "BailingMoELinearAttention": ("linear_attn",),
}
FOLDER = "vllm/v1/attention/backends"


def refusal(sources: Sources, top: ClassSite, decoder: ClassSite) -> str | None:
    """Why the target's state cannot be rolled back, or None if it can, or has none."""
    marks = {site.name for site in bases(sources, top)}
    if "IsAttentionFree" in marks:
        return "a state-space model without attention has no per-token state to draft from"
    if not marks & {"IsHybrid", "HasInnerState"}:
        return None
    names = {
        node.id
        for node in ast.walk(sources.tree(decoder.path))
        if isinstance(node, ast.Name) and node.id in BACKENDS
    }
    for name in sorted(names):
        files = [f"{FOLDER}/{stem}.py" for stem in BACKENDS[name]]
        if not any(sources.exists(f) and b"num_accepted_tokens" in sources.data(f) for f in files):
            return f"this vLLM cannot roll back the state of {name} when a draft is rejected"
    if not names:
        return "it keeps recurrent state of a kind this tool does not know"
    return None
