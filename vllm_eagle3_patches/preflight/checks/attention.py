"""`attention-backend`: the target's explicit backend reaches a drafter it cannot serve.

Up to 0.20.x the drafter's layers are built under the target's `attention_config`; 0.21.0 gave
V1 drafters their own (`attention_backend` of the speculative config, else automatic); V2 keeps
the target's unless that field is set.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates import proposer
from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.findings import Finding, error, warning
from vllm_eagle3_patches.preflight.runner import V1
from vllm_eagle3_patches.preflight.speculative import fields

CLASS = "attention-backend"
REGISTRIES = ("vllm/v1/attention/backends/registry.py", "vllm/attention/backends/registry.py")
OPTIONS = "vllm/engine/arg_utils.py"
VARIABLE = "VLLM_ATTENTION_BACKEND"
CUDA = "vllm/platforms/cuda.py"


def check(context: Context) -> Iterator[Finding]:
    backend = _asked(context)
    own = context.speculative.get("attention_backend")
    if isinstance(own, str) and own.lower() != "auto":
        return
    if backend is None or context.drafter.is_mla or context.drafter.site is None:
        return
    if not context.target.is_mla or not _mla_only(context, backend):
        return
    inherits = [name for name in context.runners if _inherits(context, name)]
    if not inherits:
        return
    detail = (
        f"{backend} serves MLA only; the drafter has ordinary attention and inherits it in vLLM "
        f"{context.version}"
    )
    takes_field = "attention_backend" in fields(context.sources)
    fix = (
        '"attention_backend": "FLASH_ATTN" (or another without MLA) in the speculative config'
        if takes_field
        else f"do not ask for {backend}: vLLM chooses a backend for each model"
    )
    # From 0.11.1 on CUDA an explicit backend that does not fit raises; before, it was passed over.
    raises = "validate_configuration" in snippets.text(context.sources, CUDA)
    if not raises:
        return
    sure = len(inherits) == len(context.runners) and not backend.startswith(("ROCM", "CPU", "XPU"))
    yield (error if sure else warning)(CLASS, detail, fix)


def _asked(context: Context) -> str | None:
    """The explicit backend: an option from 0.13.0 on, a variable up to 0.14.1."""
    if '"--attention-backend"' in snippets.text(context.sources, OPTIONS):
        named = context.serve.attention_backend
        if named is not None:
            return named
    if VARIABLE not in snippets.text(context.sources, "vllm/envs.py"):
        return None
    return (
        context.serve.environment.get(VARIABLE) or os.environ.get(VARIABLE) or ""
    ).upper() or None


def _mla_only(context: Context, backend: str) -> bool:
    for path in REGISTRIES:
        match = re.search(
            rf"^    {re.escape(backend)} = \(?\s*\"([^\"]+)",
            snippets.text(context.sources, path),
            re.MULTILINE,
        )
        if match is not None:
            return ".mla." in match[1]
    return "MLA" in backend


def _inherits(context: Context, runner: str) -> bool:
    if runner != V1:
        return True
    try:
        path = proposer.find(context.sources).path
    except RefusedError:
        return True
    own = snippets.function_text(context.sources, path, "_create_draft_vllm_config") or ""
    return "backend=spec_cfg.attention_backend" not in re.sub(r"\s", "", own)
