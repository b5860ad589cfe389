"""Targets and drafters as they are published: config.json and the shapes of their tensors.

Where a fact is from:
[specforge] sgl-project/SpecForge, configs/*.json (the drafter configs it trains and exports)
[modelopt]  NVIDIA/Model-Optimizer, modelopt/torch/export/plugins/hf_spec_export.py (the keys, and
            the tensor names LLAMA_EAGLE_SINGLE_LAYER and KIMIK2_EAGLE_SINGLE_LAYER)
[45764]     vllm-project/vllm PR 45764: lightseekorg/kimi-k2.6-eagle3-mla has model_type kimi_k2
[25454]     sgl-project/sglang PR 25454: lightseekorg/kimi-k2.5-eagle3-mla numbers from 2
[32334]     sgl-project/sglang PR 32334: aux layers of nvidia/gpt-oss-120b-Eagle3-*
[14988]     NVIDIA/TensorRT-LLM PR 14988: EAGLE-3.1 heads have fc_norm and norm_output
[53]        vllm-project/speculators PR 53: a config.json of its converter
[cases]     cases.jsonl of this project: yuhuili/EAGLE3-LLaMA3.1-Instruct-8B has
            max_position_embeddings 2048; nvidia/Llama-3.3-70B-Instruct-Eagle3 names no ids
Numbers of DeepSeek-V3's attention (ranks, head dimensions), of Llama-3 and Qwen3 are those of the
models' own config.json.
"""

from __future__ import annotations

import copy
from typing import Any

Config = dict[str, Any]
Shapes = dict[str, tuple[int, ...]]

# -- targets ---------------------------------------------------------------------------------

KIMI_K25: Config = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "media_placeholder_token_id": 163605,
    "torch_dtype": "bfloat16",
    "text_config": {
        "model_type": "kimi_k2",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "vocab_size": 163840,
        "num_attention_heads": 64,
        "num_key_value_heads": 64,
        "kv_lora_rank": 512,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "max_position_embeddings": 262144,
        "rope_theta": 50000.0,
        "rope_scaling": {
            "type": "yarn",
            "factor": 64.0,
            "original_max_position_embeddings": 4096,
        },
        "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized"},
    },
}
DEEPSEEK_V3: Config = {
    **{k: v for k, v in KIMI_K25["text_config"].items() if k != "quantization_config"},
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "vocab_size": 129280,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "torch_dtype": "bfloat16",
}
LLAMA31_8B: Config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    "torch_dtype": "bfloat16",
}
LLAMA33_70B: Config = {
    **LLAMA31_8B,
    "hidden_size": 8192,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "intermediate_size": 28672,
}
QWEN3_4B: Config = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 2560,
    "num_hidden_layers": 36,
    "vocab_size": 151936,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "rope_theta": 1000000,
    "torch_dtype": "bfloat16",
}
QWEN3_30B: Config = {
    **QWEN3_4B,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
}
GPT_OSS_120B: Config = {
    "architectures": ["GptOssForCausalLM"],
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_hidden_layers": 36,
    "vocab_size": 201088,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "sliding_window": 128,
    "rope_theta": 150000,
    "quantization_config": {"quant_method": "mxfp4"},
}
QWEN25_VL: Config = {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "vocab_size": 152064,
    "image_token_id": 151655,
    "max_position_embeddings": 128000,
    "rope_theta": 1000000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
}

# -- drafters --------------------------------------------------------------------------------

# [specforge] kimi-k25-eagle3.json; the layout of lightseekorg/kimi-k2.5-eagle3 (MHA).
KIMI_MHA: Config = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 163584,
    "draft_vocab_size": 32000,
    "dtype": "bfloat16",
    "eagle_config": {
        "eagle_aux_hidden_state_layer_ids": [2, 30, 58],
        "use_aux_hidden_state": True,
    },
    "eos_token_id": 163585,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "initializer_range": 0.02,
    "intermediate_size": 18432,
    "max_position_embeddings": 131072,
    "max_window_layers": 48,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 64,
    "num_hidden_layers": 1,
    "num_key_value_heads": 64,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "tie_word_embeddings": False,
    "transformers_version": "4.57.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 163840,
}
# [modelopt] the template of its `kimik2` decoder; [45764] model_type; [25454] layer ids.
KIMI_MLA: Config = {
    "architectures": ["Eagle3DeepseekV2ForCausalLM"],
    "attention_bias": False,
    "aux_loss_alpha": 0.001,
    "draft_vocab_size": 163840,
    "eagle_config": {
        "eagle_aux_hidden_state_layer_ids": [2, 30, 58],
        "use_aux_hidden_state": True,
        "use_input_layernorm_in_first_layer": True,
        "use_last_layernorm": True,
        "use_mtp_layernorm": False,
        "next_layer_regular": True,
        "parallel_draft_step": 1,
        "parallel_draft_heads_num_layers": 1,
    },
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 262144,
    "model_type": "kimi_k2",
    "n_routed_experts": 384,
    "num_attention_heads": 64,
    "num_hidden_layers": 1,
    "num_key_value_heads": 64,
    "num_nextn_predict_layers": 0,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "type": "yarn",
        "factor": 64.0,
        "original_max_position_embeddings": 4096,
    },
    "rope_theta": 50000.0,
    "routed_scaling_factor": 2.827,
    "torch_dtype": "bfloat16",
    "v_head_dim": 128,
    "vocab_size": 163840,
}
# [14988] lightseekorg/kimi-k2.6-eagle3.1-mla: the same with EAGLE-3.1's two flags.
KIMI_MLA_31: Config = {**KIMI_MLA, "fc_norm": True, "norm_output": True}
# [cases] yuhuili/EAGLE3-LLaMA3.1-Instruct-8B: SafeAILab's own layout.
LLAMA31_YUHUILI: Config = {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 128000,
    "draft_vocab_size": 32000,
    "eos_token_id": 128001,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 2048,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 1,
    "num_key_value_heads": 8,
    "pad_token_id": 0,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "transformers_version": "4.28.1",
    "use_cache": True,
    "vocab_size": 128256,
}
# yuhuili/EAGLE3-LLaMA3.3-Instruct-70B: narrower than its target, with its own embedding
# (vllm-project/vllm PR 17740 brought target_hidden_size for it).
LLAMA33_YUHUILI: Config = {
    **LLAMA31_YUHUILI,
    "hidden_size": 6144,
    "target_hidden_size": 8192,
    "num_attention_heads": 48,
    "intermediate_size": 16384,
}
# [cases] nvidia/Llama-3.3-70B-Instruct-Eagle3 in [modelopt]'s layout: no ids.
LLAMA33_MODELOPT: Config = {
    **LLAMA31_YUHUILI,
    "architectures": ["LlamaForCausalLMEagle3"],
    "head_dim": 128,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "intermediate_size": 28672,
    "max_position_embeddings": 131072,
    "rope_theta": 500000.0,
}
# [specforge] qwen3-4b-eagle3.json.
QWEN3_SPECFORGE: Config = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "head_dim": 80,
    "hidden_act": "silu",
    "hidden_size": 2560,
    "initializer_range": 0.02,
    "intermediate_size": 9728,
    "max_position_embeddings": 40960,
    "max_window_layers": 36,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 1,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.51.0",
    "use_cache": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
    "draft_vocab_size": 32000,
}
# [specforge] qwen3-30B-A3B-eagle3.1.json.
QWEN3_31: Config = {
    **QWEN3_SPECFORGE,
    "fc_norm": True,
    "norm_output": True,
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 12288,
    "max_position_embeddings": 2048,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
}
# [32334] nvidia/gpt-oss-120b-Eagle3-long-context, in [modelopt]'s layout.
GPT_OSS_NVIDIA: Config = {
    "architectures": ["LlamaForCausalLMEagle3"],
    "draft_vocab_size": 201088,
    "eagle_config": {
        **KIMI_MLA["eagle_config"],
        "eagle_aux_hidden_state_layer_ids": [1, 17, 32],
    },
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2880,
    "intermediate_size": 17280,
    "max_position_embeddings": 131072,
    "model_type": "llama",
    "num_attention_heads": 64,
    "num_hidden_layers": 1,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 150000,
    "torch_dtype": "bfloat16",
    "vocab_size": 201088,
}
# [32334] -v3: boundaries 24, 30, 36 (the last layer's output), norm_before_fc.
GPT_OSS_V3: Config = {
    **GPT_OSS_NVIDIA,
    "norm_before_fc": True,
    "eagle_aux_hidden_state_layer_ids": [24, 30, 36],
    "eagle_config": {
        **GPT_OSS_NVIDIA["eagle_config"],
        "eagle_aux_hidden_state_layer_ids": [24, 30, 36],
    },
}
# [32334] -short-context: the final hidden state instead of aux states.
GPT_OSS_SHORT: Config = {
    **GPT_OSS_NVIDIA,
    "eagle_config": {
        **KIMI_MLA["eagle_config"],
        "eagle_aux_hidden_state_layer_ids": [],
        "use_aux_hidden_state": False,
    },
}
# [53] eagle3-llama3.1-8b-instruct-speculators.
SPECULATORS: Config = {
    "architectures": ["Eagle3Speculator"],
    "auto_map": {"": "eagle3.Eagle3SpeculatorConfig"},
    "draft_vocab_size": 32000,
    "has_no_defaults_at_init": False,
    "norm_before_residual": False,
    "speculators_config": {
        "algorithm": "eagle3",
        "default_proposal_method": "greedy",
        "proposal_methods": [
            {
                "accept_tolerance": 0.0,
                "proposal_type": "greedy",
                "speculative_tokens": 5,
                "verifier_accept_k": 1,
            }
        ],
        "verifier": {
            "architectures": ["LlamaForCausalLM"],
            "name_or_path": "meta-llama/Meta-Llama-3.1-8B-Instruct",
        },
    },
    "speculators_model_type": "eagle3",
    "speculators_version": "0.1.0.dev21",
    "torch_dtype": "float32",
    "transformer_layer_config": {
        "attention_bias": False,
        "attention_dropout": 0.0,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "initializer_range": 0.02,
        "intermediate_size": 14336,
        "max_position_embeddings": 131072,
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": 32,
        "num_hidden_layers": 1,
        "num_key_value_heads": 8,
        "rms_norm_eps": 1e-05,
        "rope_theta": 500000.0,
        "vocab_size": 128256,
    },
}


def with_settings(config: Config, **settings: Any) -> Config:
    """A copy with these settings; a setting of None is taken out."""
    changed = copy.deepcopy(config)
    for key, value in settings.items():
        if value is None:
            changed.pop(key, None)
        else:
            changed[key] = value
    return changed


def tensors(config: Config, target: Config, *, states: int = 3, embedding: bool = False) -> Shapes:
    """The tensors of a checkpoint that fits its config: names of [modelopt], one layer."""
    layer = config.get("transformer_layer_config", config)
    hidden, middle = layer["hidden_size"], layer["intermediate_size"]
    wide = target.get("text_config", target)["hidden_size"]
    vocab = layer["vocab_size"]
    draft = config.get("draft_vocab_size") or vocab
    heads = layer["num_attention_heads"]
    shapes: Shapes = {
        "fc.weight": (hidden, states * wide),
        "norm.weight": (hidden,),
        "lm_head.weight": (draft, hidden),
        "midlayer.hidden_norm.weight": (hidden,),
        "midlayer.input_layernorm.weight": (hidden,),
        "midlayer.post_attention_layernorm.weight": (hidden,),
        "midlayer.mlp.gate_proj.weight": (middle, hidden),
        "midlayer.mlp.up_proj.weight": (middle, hidden),
        "midlayer.mlp.down_proj.weight": (hidden, middle),
    }
    if "kv_lora_rank" in layer:
        rank, q_rank = layer["kv_lora_rank"], layer["q_lora_rank"]
        nope, rope, value = (
            layer[k] for k in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
        )
        attention = {
            "q_a_proj": (q_rank, 2 * hidden),
            "q_a_layernorm": (q_rank,),
            "q_b_proj": (heads * (nope + rope), q_rank),
            "kv_a_proj_with_mqa": (rank + rope, 2 * hidden),
            "kv_a_layernorm": (rank,),
            "kv_b_proj": (heads * (nope + value), rank),
            "o_proj": (hidden, heads * value),
        }
    else:
        size = layer.get("head_dim") or hidden // heads
        kv = layer["num_key_value_heads"]
        attention = {
            "q_proj": (heads * size, 2 * hidden),
            "k_proj": (kv * size, 2 * hidden),
            "v_proj": (kv * size, 2 * hidden),
            "o_proj": (hidden, heads * size),
        }
    shapes.update({f"midlayer.self_attn.{k}.weight": v for k, v in attention.items()})
    if draft != vocab:
        shapes.update({"d2t": (draft,), "t2d": (vocab,)})
    if embedding:
        shapes["embed_tokens.weight"] = (vocab, hidden)
    if config.get("norm_before_fc"):
        shapes["input_norm.weight"] = (states * wide,)
    if config.get("fc_norm"):
        shapes.update({f"fc_norm.{i}.weight": (wide,) for i in range(states)})
    return shapes
