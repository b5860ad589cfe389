"""`pipeline-parallel` and `draft-tensor-parallel`: what the ranks can share out."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_eagle3_patches.preflight import capture, snippets
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.facts import integer, kv_heads
from vllm_eagle3_patches.preflight.findings import Finding, error, warning
from vllm_eagle3_patches.preflight.runner import V1, V2, V2_AUX
from vllm_eagle3_patches.sources import bases

PIPELINE = "pipeline-parallel"
TENSOR = "draft-tensor-parallel"
RELAY = "supports_aux_hidden_states_over_pp"
V2_RUNNER = "vllm/v1/worker/gpu/model_runner.py"


def check(context: Context) -> Iterator[Finding]:
    if context.serve.pipeline_parallel > 1:
        yield from _pipeline(context, context.serve.pipeline_parallel)
    yield from _draft_ranks(context)
    yield from _divisible(context)


def _relays(context: Context) -> bool:
    """Whether the decoder hands its aux states on to the next stage (V2, 0.30.0 on)."""
    decoder = capture.decoder_of(context.sources, context.target.architecture)
    if decoder is None or RELAY not in snippets.text(context.sources, V2_AUX):
        return False
    for owner in bases(context.sources, decoder):
        value = owner.attribute(RELAY)
        if value is not None:
            return getattr(value, "value", None) is True
    return False


def _pipeline(context: Context, stages: int) -> Iterator[Finding]:
    fix = "serve with tensor parallelism alone: --pipeline-parallel-size 1"
    broken: dict[str, str] = {}
    for runner in context.runners:
        if runner == V2:
            if _relays(context):
                continue
            text = snippets.text(context.sources, V2_RUNNER)
            guard = "with pipeline parallel" in text or RELAY in snippets.text(
                context.sources, V2_AUX
            )
            broken[runner] = "raises ValueError at start-up" if guard else "does not relay them"
        elif not _all_in_last_stage(context, stages):
            broken[runner] = (
                "takes only those of the last stage, so fc gets too few or other states"
            )
    if not broken:
        return
    text = "; ".join(f"{runner} {what}" for runner, what in broken.items())
    sure = len(broken) == len(context.runners)
    yield (error if sure else warning)(
        PIPELINE,
        f"{stages} pipeline stages: the aux states of all but the last stage do not reach the "
        f"drafter in vLLM {context.version} ({text})",
        fix,
    )


def _all_in_last_stage(context: Context, stages: int) -> bool:
    """Whether every aux layer lies in V1's last stage: layers are shared out evenly."""
    layers, ids = context.target.layers, context.taken_ids.get(V1)
    found = context.capture
    if layers is None or not ids or found is None or not found.absolute:
        return False
    # `get_pp_indices`: what is left over goes to stages before the last.
    return min(ids) >= layers - layers // stages


def _draft_ranks(context: Context) -> Iterator[Finding]:
    asked = context.speculative.get("draft_tensor_parallel_size")
    ranks = context.serve.tensor_parallel
    if not isinstance(asked, int) or asked == ranks:
        return
    if asked != 1:
        yield error(
            TENSOR,
            f"draft_tensor_parallel_size is {asked}; vLLM takes 1 or the target's {ranks}",
            "leave it out",
        )
        return
    yield warning(
        TENSOR,
        f"draft_tensor_parallel_size 1 has no effect on an EAGLE-3 drafter: it is built on the "
        f"target's {ranks} ranks",
        "leave it out",
    )


def _divisible(context: Context) -> Iterator[Finding]:
    ranks = context.serve.tensor_parallel
    config = context.drafter.config
    if ranks == 1 or context.drafter.site is None:
        return
    heads, kv = integer(config, "num_attention_heads"), kv_heads(config)
    middle = integer(config, "intermediate_size")
    fix = "choose a --tensor-parallel-size that divides the drafter too, or another drafter"
    if heads is not None and heads % ranks:
        yield error(
            TENSOR,
            f"the drafter's {heads} attention heads cannot be shared out over {ranks} ranks",
            fix,
        )
    elif (
        kv is not None
        and not context.drafter.is_mla
        and (kv % ranks if kv >= ranks else ranks % kv)
    ):
        yield error(
            TENSOR,
            f"the drafter's {kv} key-value heads cannot be shared out over {ranks} ranks",
            fix,
        )
    if middle is not None and middle % ranks:
        yield error(
            TENSOR,
            f"the drafter's intermediate_size {middle} is no multiple of {ranks} ranks",
            fix,
        )
