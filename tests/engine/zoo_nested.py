"""Decoders that lie where the loader of drafters does not look for them.

Nested: the decoder is a part of what the model calls its own. Bare: a multimodal model gives out
its decoder for the language model, beside a head that it keeps. Each has a reference of its kind:
the transformers class, or hooks (see `zoo_hooked`).
"""

from zoo import ABSENT, BARE, HIDDEN, LAYERS, NESTED, VOCAB, Animal
from zoo_hooked import COMMON, hooked
from zoo_wrappers import SIGLIP

CHATGLM = {
    "num_layers": LAYERS, "padded_vocab_size": VOCAB, "ffn_hidden_size": 96, "kv_channels": 32,
    "seq_length": 256, "multi_query_attention": True, "multi_query_group_num": 1,
    "add_qkv_bias": True, "original_rope": True, "num_hidden_layers": ABSENT,
}  # fmt: skip
MOLMO = {
    **COMMON, "embedding_size": VOCAB, "layer_norm_type": "rms", "layer_norm_eps": 1e-5,
    "qkv_bias": False, "attention_layer_norm": True, "weight_tying": False,
}  # fmt: skip
MOLMO2 = {
    **COMMON, "additional_vocab_size": 16, "qkv_bias": True, "rope_theta": 10000.0,
    "use_qk_norm": True, "qk_norm_type": "qwen3", "layer_norm_eps": 1e-5,
    "rope_scaling_layers": None,
}  # fmt: skip
SIGHT = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "head_dim": 16, "layer_norm_eps": 1e-6,
}  # fmt: skip

ANIMALS = (
    Animal("OPTForCausalLM", "opt", NESTED, {
        "ffn_dim": 96, "word_embed_proj_dim": HIDDEN, "do_layer_norm_before": True,
        "num_key_value_heads": ABSENT, "head_dim": ABSENT}, kv=(2, 32), sample=True),
    Animal("ChatGLMModel", "chatglm", NESTED, CHATGLM, reference=None),
    # nested, and bare too: what it gives out is what holds the decoder
    Animal("GLM4VForCausalLM", "chatglm", BARE, {
        **CHATGLM, "boi_token_id": 241, "eoi_token_id": 242, "vision_config": {
            "hidden_size": 32, "num_hidden_layers": 1, "num_heads": 2, "intermediate_size": 32,
            "hidden_act": "gelu", "in_channels": 3, "num_positions": 5, "patch_size": 14,
            "image_size": 28, "layer_norm_eps": 1e-6, "dropout_prob": 0.0,
            "scaling_factor": 8}}, reference=None),
    Animal("Idefics3ForConditionalGeneration", "idefics3", BARE, {
        "vision_config": SIGLIP, "image_token_id": 240, "scale_factor": 2}, text={
        "model_type": "llama"}),
    Animal("SmolVLMForConditionalGeneration", "smolvlm", BARE, {
        "vision_config": SIGLIP, "image_token_id": 240, "scale_factor": 2}, text={
        "model_type": "llama"}, sample=True),
    hooked("MolmoForCausalLM", BARE, {
        **MOLMO, "norm_after": True}),
    hooked("Molmo2ForConditionalGeneration", BARE, {
        "image_patch_id": 240, "vit_config": {
            **SIGHT, "hidden_act": "gelu_pytorch_tanh", "image_default_input_size": [28, 28],
            "image_patch_size": 14, "image_num_pos": 4},
        "adapter_config": {
            **SIGHT, "vit_layers": [-1, -1], "pooling_attention_mask": False,
            "hidden_act": "silu", "text_hidden_size": HIDDEN}}, text={
        **MOLMO2, "norm_after": False}),
    Animal("Moondream3ForCausalLM", "moondream3", BARE, {
        "config": {
            "text": {
                "dim": HIDDEN, "ff_dim": 96, "n_layers": LAYERS, "vocab_size": VOCAB,
                "max_context": 256, "n_heads": 2, "n_kv_heads": 2, "moe": {
                    "start_layer": 3, "n_experts": 4, "n_experts_per_tok": 2,
                    "expert_inner_dim": 32}},
            "vision": {
                "enc_dim": 32, "enc_n_layers": 1, "enc_ff_dim": 32, "enc_n_heads": 2,
                "proj_inner_dim": 32, "crop_size": 28}}}, reference=None, kv=(2, 32)),
)  # fmt: skip
