"""`argument`: the speculative configuration is one that this vLLM's `SpeculativeConfig` takes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.annotations import field_of
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.drafter import is_eagle3, is_speculators
from vllm_eagle3_patches.preflight.findings import Finding, error, warning
from vllm_eagle3_patches.preflight.option_values import refused_json
from vllm_eagle3_patches.preflight.speculative import fields, methods

CLASS = "argument"
# Fields that the engine fills in itself.
INTERNAL = frozenset(
    {"target_model_config", "target_parallel_config", "draft_model_config"}
    | {"draft_parallel_config", "enable_chunked_prefill", "disable_log_stats"}
)
ELSEWHERE = ("method", "model", "num_speculative_tokens", "tensor_parallel_size")
TRAINED = "mask_hidden not found in weights"


def check(context: Context) -> Iterator[Finding]:
    yield from context.serve.findings
    if context.serve.speculative is None or context.serve.unreadable:
        return
    yield from _names(context)
    yield from _values(context)
    yield from _method(context)
    yield from _count(context)
    yield from _parallel_drafting(context)


def _names(context: Context) -> Iterator[Finding]:
    known = fields(context.sources) - INTERNAL
    if not known:
        return
    if context.speculative.get("tensor_parallel_size") is not None:
        yield error(
            CLASS,
            "speculative_config has tensor_parallel_size, which is refused there",
            "name it draft_tensor_parallel_size, or leave it out",
        )
    for key in context.speculative:
        if key in known or key == "tensor_parallel_size":
            continue
        close = get_close_matches(key, known, n=1, cutoff=0.6)
        yield error(
            CLASS,
            f"speculative_config has {key!r}, which SpeculativeConfig of vLLM {context.version} "
            "does not know",
            f"did you mean {close[0]!r}?" if close else "leave it out, or take a vLLM that has it",
        )
    if not context.speculative.get("model"):
        yield error(
            CLASS,
            "speculative_config names no model, so there is no drafter",
            '"model": the drafter\'s folder or Hugging Face id',
        )


def _values(context: Context) -> Iterator[Finding]:
    """Values of a type that the field of `SpeculativeConfig` does not take."""
    for key, value in context.speculative.items():
        if key in ELSEWHERE:
            continue
        field = field_of(context.sources, "SpeculativeConfig", key, None)
        wanted = refused_json(field, value) if field is not None else None
        if wanted is not None:
            yield error(
                CLASS,
                f"speculative_config.{key} is {value!r}; vLLM {context.version} wants {wanted}",
                f"correct {key}, or leave it out",
            )


def _method(context: Context) -> Iterator[Finding]:
    method = context.speculative.get("method")
    known = methods(context.sources)
    if method == "eagle3":
        return
    if method is None:
        yield from _detected(context)
    elif known and method not in known:
        close = get_close_matches(str(method), known, n=1)
        yield error(
            CLASS,
            f"speculative_config.method {method!r} is none that vLLM {context.version} knows",
            f"did you mean {close[0]!r}?" if close else '"method": "eagle3"',
        )
    else:
        yield _other(context, str(method))


def _other(context: Context, method: str) -> Finding:
    """A method that vLLM knows, and that is not for this head."""
    certain = is_eagle3(context.drafter.raw, context.drafter.weights)
    if method == "eagle" and not certain:
        return warning(
            CLASS,
            "speculative_config.method is 'eagle', and nothing in the drafter's config.json or "
            "tensors marks an EAGLE-3 head: it is examined as an EAGLE-1 head, which needs none "
            "of the gates",
            'right for an EAGLE-1 head; for an EAGLE-3 one "method": "eagle3"',
        )
    return (error if certain and method == "eagle" else warning)(
        CLASS,
        f"speculative_config.method is {method!r}; this drafter "
        f"{'is' if certain else 'is examined here as'} an EAGLE-3 head",
        '"method": "eagle3"',
    )


def _detected(context: Context) -> Iterator[Finding]:
    """Without a method vLLM goes by the drafter's name: `eagle-` first, then `eagle3`."""
    model = str(context.speculative.get("model", ""))
    name = model.lower()
    if is_speculators(context.drafter.raw) and "eagle3" in name and "eagle-" not in name:
        return
    if "eagle-" in name:
        yield error(
            CLASS,
            f"no method is given, and {model!r} has `eagle-` in it: vLLM takes it for EAGLE-1",
            '"method": "eagle3"',
        )
    elif "eagle3" not in name:
        yield error(
            CLASS,
            f"no method is given, and {model!r} does not have `eagle3` in it: vLLM takes it for a "
            "whole draft model",
            '"method": "eagle3"',
        )


def _count(context: Context) -> Iterator[Finding]:
    count = context.speculative.get("num_speculative_tokens")
    predicts = context.drafter.config.get("n_predict")
    if count is None:
        if predicts is None:
            yield error(
                CLASS,
                "num_speculative_tokens is not given, and the drafter's config has no n_predict",
                '"num_speculative_tokens": 3',
            )
        return
    if isinstance(count, bool) or not re.fullmatch(r"\d+", str(count)) or int(count) < 1:
        yield error(
            CLASS,
            f"num_speculative_tokens is {count!r}; it has to be a number above 0",
            '"num_speculative_tokens": 3',
        )
    elif isinstance(predicts, int) and predicts and int(count) > predicts and int(count) % predicts:
        yield error(
            CLASS,
            f"num_speculative_tokens {count} is no multiple of the drafter's n_predict {predicts}",
            f'"num_speculative_tokens": {predicts}',
        )


def _parallel_drafting(context: Context) -> Iterator[Finding]:
    site = context.drafter.site
    if not context.speculative.get("parallel_drafting") or site is None:
        return
    if TRAINED in snippets.text(context.sources, site.path) and (
        context.has_tensor("mask_hidden") is False
    ):
        yield error(
            CLASS,
            "parallel_drafting is asked for, and the drafter's weights have no mask_hidden",
            "leave parallel_drafting out: this head drafts one token after the other",
        )
