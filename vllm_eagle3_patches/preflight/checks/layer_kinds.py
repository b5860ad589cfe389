"""`drafter`: `layer_types` of the drafter on versions that look in it with the target's count.

0.10.1: the drafter's layer is numbered after the target's last one, and `LlamaAttention` takes
`layer_types[layer_idx]`; 0.10.2 subtracts `target_layer_count`.
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.findings import Finding, error
from vllm_eagle3_patches.preflight.model_files import model_files


def check(context: Context) -> Iterator[Finding]:
    kinds, layers = context.drafter.config.get("layer_types"), context.target.layers
    site = context.drafter.site
    if site is None or layers is None or not isinstance(kinds, list) or len(kinds) > layers:
        return
    for path in model_files(context.sources, site.path):
        text = snippets.text(context.sources, path)
        if kinds and "layer_types[layer_idx]" in text and "target_layer_count" not in text:
            if "layer_idx < len(layer_types)" in text:
                continue
            yield error(
                "drafter",
                f"the drafter's layer_types has {len(kinds)} entries, and vLLM {context.version} "
                f"looks for number {layers} in it ({path}): IndexError",
                "take layer_types out of the drafter's config.json, or take vLLM 0.10.2 or newer",
            )
