"""`ignored-setting`: settings of the drafter's config that no code of this version reads.

A key counts as read when it stands, as a string or as an attribute, in the file of the drafter's
class, in the files that class builds on, or where vLLM reads the config.  Only keys with a value
that asks for something are looked at, and none of the bookkeeping ones.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.aux import KEY, NESTED, V1_RUNNER
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.drafter import SPECULATIVE
from vllm_eagle3_patches.preflight.findings import Finding, warning
from vllm_eagle3_patches.preflight.model_files import model_files
from vllm_eagle3_patches.preflight.runner import V2_AUX
from vllm_eagle3_patches.sources import bases

CLASS = "ignored-setting"
# Bookkeeping of Transformers and of trainers: nothing at inference depends on these.
INERT = frozenset(
    {
        *("architectures", "auto_map", "base_model_ep_plan", "bos_token_id", "dtype"),
        *("attention_dropout", "chunk_size_feed_forward", "cross_attention_hidden_size"),
        *("decoder_start_token_id", "embed_requires_grad", "eos_token_id", "finetuning_task"),
        *("has_no_defaults_at_init", "id2label", "initializer_range", "is_decoder"),
        *("is_encoder_decoder", "label2id", "max_window_layers", "model_type", "name_or_path"),
        *("output_attentions", "output_hidden_states", "pad_token_id", "prefix"),
        *("pretraining_tp", "problem_type", "return_dict", "sep_token_id"),
        *("speculators_config", "speculators_model_type", "speculators_version"),
        *("target_model_type", "task_specific_params", "tokenizer_class", "torch_dtype"),
        *("torchscript", "transformer_layer_config", "transformers_version", "use_cache"),
        *("use_bfloat16", "use_return_dict", "_name_or_path", "_attn_implementation"),
        *("_attn_implementation_autoset", "attn_implementation", "use_sliding_window"),
        *("tie_word_embeddings", "head_dtype", "export_version", "producer"),
        # generation settings of Transformers 4
        *("bad_words_ids", "begin_suppress_tokens", "diversity_penalty", "do_sample"),
        *("early_stopping", "encoder_no_repeat_ngram_size", "exponential_decay_length_penalty"),
        *("forced_bos_token_id", "forced_eos_token_id", "length_penalty", "max_length"),
        *("min_length", "no_repeat_ngram_size", "num_beam_groups", "num_beams"),
        *("num_return_sequences", "output_scores", "remove_invalid_values"),
        *("repetition_penalty", "return_dict_in_generate", "suppress_tokens", "temperature"),
        *("tf_legacy_loss", "tie_encoder_decoder", "top_k", "top_p", "typical_p"),
        *("pruned_heads", "add_cross_attention", "seq_aux", "aux_loss_alpha", "ep_size"),
        # the mixture of experts of the target; EAGLE-3 drafters are dense
        *("first_k_dense_replace", "moe_intermediate_size", "moe_layer_freq", "n_group"),
        *("n_routed_experts", "n_shared_experts", "norm_topk_prob", "num_experts_per_tok"),
        *("num_nextn_predict_layers", "routed_scaling_factor", "scoring_func", "topk_group"),
        *("topk_method", "num_local_experts", "experts_per_token", "router_aux_loss_coef"),
    }
)
# What vLLM does in any case; Model-Optimizer writes these into every `eagle_config`
# (modelopt/torch/export/plugins/hf_spec_export.py).
FIXED: Mapping[str, Any] = {
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "next_layer_regular": True,
    "parallel_draft_step": 1,
    "parallel_draft_heads_num_layers": 1,
    "use_aux_hidden_state": True,
}
# Settings of a layer: only the drafter's own model files can act on them.
OF_THE_LAYER = ("layer_types", "sliding_window")
ASKS_BY_FALSE = frozenset({"use_aux_hidden_state", "norm_before_residual"})
READERS = (
    *SPECULATIVE,
    V2_AUX,
    "vllm/config/model.py",
    "vllm/transformers_utils/config.py",
    "vllm/transformers_utils/model_arch_config_convertor.py",
    "vllm/model_executor/layers/rotary_embedding/__init__.py",
    "vllm/v1/spec_decode/eagle.py",
    "vllm/v1/spec_decode/llm_base_proposer.py",
)


def check(context: Context) -> Iterator[Finding]:
    drafter = context.drafter
    if drafter.site is None:
        return
    models = "\n".join(
        snippets.text(context.sources, path)
        for path in model_files(context.sources, drafter.site.path)
    )
    source = models + _readers(context)
    found = []
    config, raw = drafter.config, drafter.raw
    layer = raw.get("transformer_layer_config") if drafter.speculators else None
    for key, value in {**(layer if isinstance(layer, dict) else {}), **raw}.items():
        if key in INERT or key in (KEY, NESTED) or not _asks(key, value):
            continue
        if drafter.speculators and key not in config:
            found.append((key, value, "vLLM's reader of the speculators format drops it"))
        elif not _read(key, models if key in OF_THE_LAYER else source):
            found.append((key, value, "no code that loads or runs the drafter reads it"))
    nested = raw.get(NESTED)
    for key, value in nested.items() if isinstance(nested, dict) else ():
        if key in (KEY, "layer_ids") or value in (None, [], {}) or FIXED.get(key, ...) == value:
            continue
        unread = not _read(key, source) or NESTED not in source
        if unread and (key in FIXED or _asks(key, value)):
            found.append((f"{NESTED}.{key}", value, "no code that runs the drafter reads it"))
    if "fc_norm" not in [key for key, _, _ in found] and config.get("fc_norm"):
        found += _created_only(context)
    for key, value, why in found:
        yield warning(
            CLASS,
            f"`{key}: {_short(value)}` of the drafter's config.json has no effect in vLLM "
            f"{context.version}: {why}",
            _fix(key),
        )


def _asks(key: str, value: object) -> bool:
    """Whether a value asks for something that is not there anyway."""
    if isinstance(value, bool):
        return value or key in ASKS_BY_FALSE
    if key == "layer_types" and isinstance(value, list):
        return any(kind != "full_attention" for kind in value)
    return value not in (None, "", 0, [], {})


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _read(key: str, source: str) -> bool:
    return re.search(rf"(?:[\"'.]){re.escape(key)}\b", source) is not None


def _readers(context: Context) -> str:
    """The text of the files, beside the model's, whose code reads the drafter's config."""
    runner = snippets.function_text(
        context.sources, V1_RUNNER, "_get_eagle3_aux_layers_from_config"
    )
    return "\n".join([*(snippets.text(context.sources, p) for p in READERS), runner or ""])


def _created_only(context: Context) -> list[tuple[str, object, str]]:
    """0.22.1: the MLA drafter makes `fc_norm` and never applies it (PR 43482)."""
    site = context.drafter.site
    assert site is not None
    for owner in bases(context.sources, site):
        combine = owner.method("combine_hidden_states")
        if combine is not None:
            if "fc_norm" in ast.unparse(combine) or "fc_norm" not in snippets.text(
                context.sources, owner.path
            ):
                return []
            why = f"{site.name} loads its weights and combine_hidden_states does not apply them"
            return [("fc_norm", True, why)]
    return []


def _fix(key: str) -> str:
    has = {
        "norm_before_fc": "0.18.0 (plain layout) and 0.19.1 (speculators format) have it",
        "fc_norm": "0.22.1 (Llama), 0.24.0 (MLA) and 0.27.1 (speculators format) have it",
        "norm_output": "0.22.1 (plain layout) and 0.27.1 (speculators format) have it",
        "num_aux_hidden_states": "0.22.1 has it",
        f"{NESTED}.use_aux_hidden_state": "0.12.0 has it",
    }.get(key)
    if has is not None:
        return f"take a newer vLLM ({has}); without it the drafts are not the head's"
    return "leave it out if it means nothing to the drafter; else take a vLLM that reads it"
