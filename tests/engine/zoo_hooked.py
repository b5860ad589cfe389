"""Decoders that transformers does not have, or that cannot be loaded from its checkpoint.

Weights are made in place; the reference is what the layer's own first norm is given, the sum of
its arguments, or its attention where that comes first, while the engine runs it.
"""

from zoo import DEFERRED, HIDDEN, LAYERS, NATIVE, SINGLE, WRAPPER, Animal
from zoo_decoders import DEEPSEEK, EXPERTS, ROUTED

ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
COMMON = {**ROPE, "hidden_act": "silu", "rms_norm_eps": 1e-5}
BAILING = {
    **COMMON, **ROUTED, "num_shared_experts": 1, "first_k_dense_replace": 1, "use_qkv_bias": False,
    "use_bias": False, "norm_topk_prob": True, "embedding_dropout": 0.0, "norm_head": False,
    "n_group": 1, "topk_group": 1, "score_function": "sigmoid", "routed_scaling_factor": 1.5,
    "use_qk_norm": True,
    "moe_router_enable_expert_bias": True,
}  # fmt: skip


def hooked(architecture, shape, config, **options):
    return Animal(architecture, "tiny_" + architecture.lower(), shape, config, reference=None,
                  **options)  # fmt: skip


ANIMALS = (
    hooked("BailingMoeForCausalLM", DEFERRED, {
        **BAILING, "score_function": "softmax", "moe_router_enable_expert_bias": False},
        sample=True),
    hooked("BailingMoeV2ForCausalLM", DEFERRED, BAILING),
    # 0.32.0 cannot load its experts from any checkpoint (KeyError: '...experts.w13_weight')
    Animal("DbrxForCausalLM", "dbrx", SINGLE, {
        "d_model": HIDDEN, "n_heads": 2, "n_layers": LAYERS, "max_seq_len": 256,
        "attn_config": {"kv_n_heads": 1, "clip_qkv": 8.0, "rope_theta": 10000.0},
        "ffn_config": {"hidden_size": HIDDEN, "ffn_hidden_size": 48, "moe_num_experts": 4,
                       "moe_top_k": 2}}, reference=None),
    hooked("ExaoneForCausalLM", DEFERRED, {
        **COMMON, "activation_function": "silu", "layer_norm_epsilon": 1e-5,
        "num_layers": LAYERS}),
    hooked("InternLM2ForCausalLM", DEFERRED, {**COMMON, "bias": False}, sample=True),
    Animal("KimiVLForConditionalGeneration", "kimi_vl", WRAPPER, {
        "media_placeholder_token_id": 240, "vision_config": {
            "num_hidden_layers": 1, "hidden_size": 32, "intermediate_size": 32,
            "num_attention_heads": 2}}, text={
        **DEEPSEEK, **ROPE, "model_type": "deepseek_v2", "topk_method": "greedy",
        "scoring_func": "softmax"}, reference=None, kv=(2, 64), first=1),
    hooked("MiniCPMForCausalLM", NATIVE, {
        **COMMON, "scale_emb": 2.0, "scale_depth": 1.4, "dim_model_base": 32, "num_experts": 0}),
    hooked("OrionForCausalLM", DEFERRED, COMMON),
    hooked("PanguEmbeddedForCausalLM", DEFERRED, {**COMMON, "bias": False}),
    hooked("PanguProMoEV2ForCausalLM", DEFERRED, {
        **COMMON, **EXPERTS, "sandwich_norm": True, "router_enable_expert_bias": False,
        "num_experts": 4}),
    hooked("Param2MoEForCausalLM", DEFERRED, {
        **BAILING, "rope_theta": 10000.0, "rope_scaling": None}),
    hooked("SarvamMoEForCausalLM", DEFERRED, {**BAILING, "moe_layer_freq": 1}),
    hooked("SolarForCausalLM", DEFERRED, {
        **COMMON, "bskcn_1": [1], "bskcn_2": [2], "bskcn_3": [4], "bskcn_4": [5],
        "bskcn_tv": [0.9, 0.8], "attention_bias": False}),
    hooked("Step3TextForCausalLM", DEFERRED, {
        **COMMON, "moe_num_experts": 4, "moe_top_k": 2, "moe_intermediate_size": 32,
        "share_expert_dim": 32, "share_q_dim": 32, "norm_expert_weight": True,
        "max_position_embedding": 256, "moe_layers_enum": "1,2,3,4,5,6"}),
)  # fmt: skip
