"""`image-token`: a multimodal target's image token, and a drafter that takes its embeddings.

The gate of this name looks at the loader's branches; here the target's config.json is compared
with the attribute that the branch reads.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vllm_eagle3_patches import registry, structure
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates import proposer
from vllm_eagle3_patches.gates.image_token import branch_for, branches, find_chain
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.findings import Finding, warning
from vllm_eagle3_patches.preflight.runner import V1
from vllm_eagle3_patches.target import KIMI_K25

CLASS = "image-token"
READS = re.compile(r"image_token_index = target_model\.config\.(\w+)$", re.MULTILINE)


def is_multimodal(context: Context) -> bool:
    entry = registry.read(context.sources).get(context.target.architecture)
    if entry is None:
        return False
    try:
        sites = registry.classes(context.sources, entry)
    except RefusedError:
        return False
    return any(structure.is_multimodal(context.sources, site) for site in sites)


def check(context: Context) -> Iterator[Finding]:
    if V1 not in context.runners or not is_multimodal(context):
        return
    if context.target.architecture != KIMI_K25:  # which the gate itself decides
        yield from _token(context)
    site = context.drafter.site
    forward = site.method("forward") if site else None
    if site is not None and forward is not None:
        text = ast.unparse(forward)
        if "does not support multimodal inputs yet" in text:
            yield warning(
                "drafter",
                f"{site.name}.forward of vLLM {context.version} raises NotImplementedError when it "
                "gets embeddings, as it does under a multimodal target",
                "take vLLM 0.11.1 or newer, or serve the text-only model",
            )


def _token(context: Context) -> Iterator[Finding]:
    try:
        loader = proposer.find(context.sources)
    except RefusedError:
        return
    chain = find_chain(loader.method)
    if chain is None:
        body = loader.method.body  # to 0.11.0 there is no choice
    else:
        body = branch_for(chain, context.target.architecture) or branches(chain)[-1][1]
    read = READS.search("\n".join(map(ast.unparse, body)))
    # Without a config.json (an architecture's name alone) there is nothing to compare with.
    if read is None or "architectures" not in context.target.config:
        return
    name = read[1]
    if name in context.target.config:
        return
    yield warning(
        CLASS,
        f"the drafter's loader reads `{name}` of the target's config "
        f"({loader.path}:{loader.method.lineno}), and config.json does not name it; it fails "
        "unless the config class has it of its own",
        f"add `{name}` (the image token's id) to the target's config.json, or see the gate "
        "image-token",
    )
