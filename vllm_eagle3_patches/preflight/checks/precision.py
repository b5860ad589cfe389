"""`aux-capture`: float16 on DeepSeek, whose layers then scale the stream they hand on.

`DeepseekV2DecoderLayer.forward` divides hidden states and residual by `routed_scaling_factor`
when they are float16, so the captured stream is not the one a drafter was trained on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from vllm_eagle3_patches.preflight import capture
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.findings import Finding, warning

CLASS = "aux-capture"
FLOAT16 = ("float16", "half")


def check(context: Context) -> Iterator[Finding]:
    if (context.dtype or "").removeprefix("torch.") not in FLOAT16:
        return
    decoder = capture.decoder_of(context.sources, context.target.architecture)
    if decoder is None:
        return
    for statement in context.sources.tree(decoder.path).body:
        if not isinstance(statement, ast.ClassDef) or "DecoderLayer" not in statement.name:
            continue
        for node in ast.walk(statement):
            if (
                isinstance(node, ast.Compare)
                and ast.unparse(node).endswith(".dtype == torch.float16")
                and "routed_scaling_factor" in ast.unparse(statement)
            ):
                yield warning(
                    CLASS,
                    f"in float16 {statement.name} ({decoder.path}:{node.lineno}) scales the stream "
                    "by 1/routed_scaling_factor: the aux states are not those of training",
                    "--dtype bfloat16",
                )
                return
