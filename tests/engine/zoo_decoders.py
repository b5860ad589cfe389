"""Decoders that both vLLM and transformers have; the reference is the transformers class."""

from zoo import (
    ABSENT,
    BEYOND,
    CAPTURES,
    CLAIMS,
    DEFERRED,
    HIDDEN,
    HYBRID,
    LAYERS,
    NATIVE,
    SINGLE,
    STALE,
    WINDOW,
    Animal,
    mixed,
)

ROUTED = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
LFM2 = {
    "conv_dim": HIDDEN, "block_dim": HIDDEN, "tie_word_embeddings": True,
}  # fmt: skip
LATENT = {
    "q_lora_rank": 32, "kv_lora_rank": 32, "qk_nope_head_dim": 32, "qk_rope_head_dim": 32,
    "v_head_dim": 32, "num_key_value_heads": 2,
}  # fmt: skip
EXPERTS = {
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "norm_topk_prob": True, "routed_scaling_factor": 1.5,
}  # fmt: skip
DEEPSEEK = {**LATENT, **EXPERTS}
GRANITE = {
    "embedding_multiplier": 1.7, "residual_multiplier": 0.6, "attention_multiplier": 0.2,
    "logits_scaling": 0.5, "num_local_experts": 4, "num_experts_per_tok": 2,
    "shared_intermediate_size": 48,
}  # fmt: skip

ANIMALS = (
    Animal("AXK1ForCausalLM", "axk1", DEFERRED, {
        **DEEPSEEK, "first_k_dense_replace": 0}, kv=(2, 64)),
    # vLLM computes BLOOM's GELU exactly, transformers its tanh form: the reference is told to, too
    Animal("BloomForCausalLM", "bloom", SINGLE, {
        "n_layer": LAYERS, "n_head": 2, "tie_word_embeddings": True}, kv=(2, 32)),
    Animal("CohereForCausalLM", "cohere", STALE, {
        "use_qk_norm": True, "tie_word_embeddings": True, "logit_scale": 0.5}, sample=True),
    Animal("Cohere2ForCausalLM", "cohere2", STALE, {
        "tie_word_embeddings": True, "logit_scale": 0.5, "sliding_window": BEYOND,
        "layer_types": mixed()}),
    # claimed and captured upstream, but with no `lm_head` that a drafter could share
    Animal("Cohere2MoeForCausalLM", "cohere2_moe", STALE, {
        **ROUTED, "tie_word_embeddings": True, "logit_scale": 0.5, "sliding_window": BEYOND,
        "layer_types": mixed()}),
    Animal("Ernie4_5_MoeForCausalLM", "ernie4_5_moe", DEFERRED, {
        "moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1,
        "moe_intermediate_size": 32, "moe_layer_start_index": 1,
        "moe_layer_end_index": LAYERS - 1}),
    Animal("Exaone4ForCausalLM", "exaone4", STALE, {
        "sliding_window": WINDOW, "layer_types": mixed()}, sample=True),
    Animal("ExaoneMoeForCausalLM", "exaone_moe", DEFERRED, {
        **ROUTED, "num_shared_experts": 1, "sliding_window": WINDOW, "layer_types": mixed(),
        "mlp_layer_types": ["dense"] + ["sparse"] * (LAYERS - 1), "first_k_dense_replace": 1}),
    Animal("FalconForCausalLM", "falcon", SINGLE, {
        "tie_word_embeddings": True, "num_kv_heads": 1, "ffn_hidden_size": 4 * HIDDEN,
        "head_dim": ABSENT}),
    Animal("FalconH1ForCausalLM", "falcon_h1", HYBRID, {
        "mamba_d_ssm": 128, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_n_groups": 1,
        "mamba_d_state": 16, "mamba_chunk_size": 16, "embedding_multiplier": 1.7,
        "attention_out_multiplier": 0.6, "ssm_out_multiplier": 0.7, "key_multiplier": 0.8}),
    Animal("GPT2LMHeadModel", "gpt2", SINGLE, {
        "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": 2, "n_positions": 256,
        "tie_word_embeddings": True}, kv=(2, 32), sample=True),
    Animal("GPTJForCausalLM", "gptj", SINGLE, {
        "n_embd": HIDDEN, "n_layer": LAYERS, "n_head": 2, "n_positions": 256,
        "rotary_dim": 16}, kv=(2, 32)),
    Animal("GemmaForCausalLM", "gemma", DEFERRED, {"tie_word_embeddings": True}),
    Animal("Gemma2ForCausalLM", "gemma2", DEFERRED, {
        "tie_word_embeddings": True, "sliding_window": WINDOW, "query_pre_attn_scalar": 24,
        "layer_types": mixed()}, sample=True),
    Animal("Gemma3ForCausalLM", "gemma3_text", DEFERRED, {
        "tie_word_embeddings": True, "sliding_window": WINDOW, "query_pre_attn_scalar": 24,
        "layer_types": mixed()}),
    Animal("Glm4ForCausalLM", "glm4", CAPTURES, sample=True),
    Animal("Glm4MoeForCausalLM", "glm4_moe", DEFERRED, {
        **EXPERTS, "use_qk_norm": True, "num_nextn_predict_layers": 0},
        sample=True),
    Animal("Glm4MoeLiteForCausalLM", "glm4_moe_lite", DEFERRED, {
        **DEEPSEEK, "mlp_layer_types": ["dense"] + ["sparse"] * (LAYERS - 1),
        "num_nextn_predict_layers": 0}, kv=(2, 64)),
    Animal("GraniteMoeForCausalLM", "granitemoe", SINGLE, GRANITE),
    Animal("GraniteMoeHybridForCausalLM", "granitemoehybrid", HYBRID, {
        **GRANITE, "layer_types": ["mamba", "attention"] * 3 + ["mamba"],
        "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16, "mamba_chunk_size": 16}),
    Animal("GraniteMoeSharedForCausalLM", "granitemoeshared", SINGLE, GRANITE),
    Animal("GraniteMoeSWAForCausalLM", "granitemoe_swa", SINGLE, {
        **GRANITE, "sliding_window": WINDOW, "layer_types": mixed()}),
    Animal("HYV3ForCausalLM", "hy_v3", DEFERRED, {
        **ROUTED, "num_shared_experts": 1, "expert_hidden_dim": 32, "qk_norm": True,
        "route_norm": True, "router_scaling_factor": 1.5, "moe_router_use_sigmoid": True,
        "mlp_layer_types": ["dense"] + ["sparse"] * (LAYERS - 1), "first_k_dense_replace": 1},
        sample=True),
    Animal("HyperCLOVAXForCausalLM", "hyperclovax", STALE, {
        "embedding_multiplier": 1.7, "residual_multiplier": 0.6, "attention_multiplier": 0.2}),
    Animal("Lfm2ForCausalLM", "lfm2", HYBRID, {
        **LFM2, "layer_types": ["conv", "full_attention"] * 3 + ["conv"]}, sample=True),
    Animal("Lfm2MoeForCausalLM", "lfm2_moe", HYBRID, {
        **ROUTED, "layer_types": ["conv", "full_attention"] * 3 + ["conv"],
        "num_dense_layers": 1, "tie_word_embeddings": True}),
    Animal("MiniCPM3ForCausalLM", "minicpm3", NATIVE, {
        **LATENT, "scale_depth": 1.4, "scale_emb": 2, "dim_model_base": 32,
        "tie_word_embeddings": True}, kv=(2, 64)),
    Animal("MixtralForCausalLM", "mixtral", DEFERRED, {
        "num_local_experts": 4, "num_experts_per_tok": 2}),
    Animal("MiMoForCausalLM", "qwen2", CLAIMS, reference="Qwen2ForCausalLM", sample=True),
    Animal("NemotronForCausalLM", "nemotron", DEFERRED),
    Animal("OlmoeForCausalLM", "olmoe", DEFERRED, {
        "num_experts": 4, "num_experts_per_tok": 2, "clip_qkv": 8.0}),
    Animal("PhiMoEForCausalLM", "phimoe", STALE, {
        "num_local_experts": 4, "num_experts_per_tok": 2, "attention_bias": True,
        "lm_head_bias": True}, reference="PhimoeForCausalLM"),
    Animal("Qwen2MoeForCausalLM", "qwen2_moe", DEFERRED, {
        **ROUTED, "shared_expert_intermediate_size": 48, "norm_topk_prob": True}),
    Animal("StableLmForCausalLM", "stablelm", STALE, {"use_qkv_bias": True}),
    Animal("GptOssForCausalLM", "gpt_oss", NATIVE, {
        "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": WINDOW,
        "layer_types": mixed()}),
    Animal("LlamaForCausalLM", "llama", NATIVE, sample=True),
    Animal("Qwen3ForCausalLM", "qwen3", NATIVE),
)  # fmt: skip
