"""`quantization`: the target's quantization must not reach a drafter that is not quantized."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.facts import quantization
from vllm_eagle3_patches.preflight.findings import Finding, error, warning

CLASS = "quantization"
MXFP4 = "vllm/model_executor/layers/quantization/mxfp4.py"
# Methods that quantize a 16-bit checkpoint while loading it; none needs the drafter's config.
ONLINE = ("fp8", "bitsandbytes", "experts_int8", "torchao", "int8_per_channel_weight_only", "rtn")


def check(context: Context) -> Iterator[Finding]:
    yield from _inherited(context)
    yield from _asked(context)


def _drafter_method(context: Context) -> str | None:
    own = quantization(context.drafter.raw)
    if own is None and (context.drafter.folder / "hf_quant_config.json").is_file():
        return "modelopt"
    return own


def _inherited(context: Context) -> Iterator[Finding]:
    """0.11.0: the drafter's layer takes `vllm_config.quant_config`, the target's."""
    site = context.drafter.site
    method = context.serve.options.get("quantization") or context.target.quantization
    if site is None or method is None or _drafter_method(context) is not None:
        return
    source = snippets.text(context.sources, site.path)
    if "get_draft_quant_config" in source or "vllm_config.quant_config" not in source:
        return
    detail = (
        f"{site.name} of vLLM {context.version} builds the drafter's layers with the target's "
        f"quantization ({method}), and the drafter's weights are not quantized"
    )
    fix = "take vLLM 0.11.1 or newer (PR 25883 gave the drafter its own quantization config)"
    if method == "mxfp4" and _mxfp4_raises(context):
        yield error(CLASS, f"{detail}: mxfp4 has no linear layers there", fix)
    else:
        yield warning(CLASS, f"{detail}; it loads only where that method leaves them alone", fix)


def _mxfp4_raises(context: Context) -> bool:
    function = snippets.function(context.sources, MXFP4, "get_quant_method")
    if function is None:
        return False
    for node in ast.walk(function):
        if isinstance(node, ast.If) and "LinearBase" in ast.unparse(node.test):
            return any(isinstance(n, ast.Raise) for n in node.body)
    return False


def _asked(context: Context) -> Iterator[Finding]:
    asked = context.speculative.get("quantization")
    own = _drafter_method(context)
    if not isinstance(asked, str) or own is not None or asked in ONLINE:
        return
    yield warning(
        CLASS,
        f"speculative_config asks for quantization {asked!r}, and the drafter's config.json has no "
        "quantization_config",
        "leave `quantization` out: the drafter's own config decides",
    )
