"""Multimodal wrappers, booted for text alone; the reference is the whole transformers class."""

from zoo import ABSENT, BEYOND, CLAIMS, WINDOW, WRAPPER, Animal, mixed
from zoo_decoders import EXPERTS, LFM2

TOKENS = {"image_token_id": 240, "video_token_id": 241}
SIGLIP = {
    "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
    "image_size": 28, "patch_size": 14,
}  # fmt: skip
DEEP = {
    "depth": 1, "hidden_size": 32, "embed_dim": 32, "num_heads": 2, "intermediate_size": 32,
    "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 64,
    "mlp_ratio": 1,
}  # fmt: skip
AUDIO = {
    "d_model": 32, "hidden_size": 32, "encoder_layers": 1, "num_hidden_layers": 1,
    "encoder_attention_heads": 2, "num_attention_heads": 2, "encoder_ffn_dim": 32,
    "intermediate_size": 32, "num_mel_bins": 16, "max_source_positions": 32,
}  # fmt: skip
MROPE = {
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 6, 6],
    },
}  # fmt: skip
PARTIAL = {
    "rope_parameters": {
        "rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 3, 3],
        "partial_rotary_factor": 0.5,
    },
}  # fmt: skip

ANIMALS = (
    Animal("AriaForConditionalGeneration", "aria", WRAPPER, {
        "vision_config": SIGLIP, "image_token_index": 240,
        "projector_patch_to_query_dict": {4: 2}}, text={
        "model_type": "aria_text", "moe_num_experts": 4, "moe_topk": 2,
        "moe_num_shared_experts": 1, "intermediate_size": 32}),
    Animal("AudioFlamingo3ForConditionalGeneration", "audioflamingo3", WRAPPER, {
        "audio_config": AUDIO, "audio_token_id": 240}, text={"model_type": "qwen2"}),
    Animal("Cohere2VisionForConditionalGeneration", "cohere2_vision", WRAPPER, {
        "vision_config": SIGLIP, "image_token_id": 240, "alignment_intermediate_size": 32,
        "tie_word_embeddings": True}, text={
        "model_type": "cohere2", "tie_word_embeddings": True, "logit_scale": 0.5,
        "sliding_window": BEYOND, "layer_types": mixed()}, sample=True),
    Animal("Exaone4_5_ForConditionalGeneration", "exaone4_5", CLAIMS, {
        **TOKENS, "vision_config": {**DEEP, "num_key_value_heads": 1}}, text={
        "model_type": "exaone4", "sliding_window": WINDOW, "layer_types": mixed()}),
    Animal("Gemma3ForConditionalGeneration", "gemma3", WRAPPER, {
        "vision_config": SIGLIP, "mm_tokens_per_image": 4, "image_token_index": 240,
        "boi_token_index": 241, "eoi_token_index": 242, "tie_word_embeddings": True}, text={
        "model_type": "gemma3_text", "tie_word_embeddings": True, "sliding_window": WINDOW,
        "query_pre_attn_scalar": 24, "layer_types": mixed()}, sample=True),
    Animal("Glm4vForConditionalGeneration", "glm4v", WRAPPER, {
        **TOKENS, "vision_config": DEEP}, text={
        "model_type": "glm4v_text", "attention_bias": True, **PARTIAL}),
    Animal("Glm4vMoeForConditionalGeneration", "glm4v_moe", WRAPPER, {
        **TOKENS, "vision_config": DEEP}, text={
        **EXPERTS, "model_type": "glm4v_moe_text", "use_qk_norm": False, **PARTIAL}),
    Animal("GlmOcrForConditionalGeneration", "glm_ocr", WRAPPER, {
        **TOKENS, "vision_config": DEEP}, text={"model_type": "glm_ocr_text", **PARTIAL}),
    Animal("Granite4VisionForConditionalGeneration", "granite4_vision", WRAPPER, {
        "vision_config": {**SIGLIP, "hidden_size": 64}, "image_token_index": 240,
        "downsample_rate": "1/2",
        "deepstack_layer_map": [], "spatial_target_layers": []}, text={
        "model_type": "granite4_vision_text", "embedding_multiplier": 1.7,
        "residual_multiplier": 0.6}),
    Animal("GraniteSpeechForConditionalGeneration", "granite_speech", WRAPPER, {
        "audio_token_index": 240, "has_lora_adapter": False, "encoder_config": {
            "input_dim": 16, "num_layers": 1, "hidden_dim": 32, "num_heads": 2, "dim_head": 16,
            "output_dim": 16},
        "projector_config": {
            "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
            "intermediate_size": 32, "encoder_hidden_size": 32,
            "model_type": "blip_2_qformer"}}, text={
        "model_type": "granite", "embedding_multiplier": 1.7, "residual_multiplier": 0.6}),
    Animal("HCXVisionV2ForCausalLM", "hyperclovax_vision_v2", WRAPPER, {
        **TOKENS, "vision_config": DEEP}, text={
        "model_type": "hyperclovax", "embedding_multiplier": 1.7, "residual_multiplier": 0.6,
        "attention_multiplier": 0.2}, reference="HyperCLOVAXVisionV2ForConditionalGeneration",
        rename=(("model.language_model.", "language_model.model."),
                ("model.vision_projector.", "mm_projector."))),
    Animal("InternVLForConditionalGeneration", "internvl", WRAPPER, {
        "image_token_id": 240, "image_seq_length": 4, "vision_config": {
            **SIGLIP, "image_size": [28, 28], "patch_size": [14, 14]}}, text={
        "model_type": "qwen2"}),
    Animal("Lfm2VlForConditionalGeneration", "lfm2_vl", WRAPPER, {
        "vision_config": {**SIGLIP, "num_patches": 4}, "image_token_id": 240,
        "projector_hidden_size": 32, "tie_word_embeddings": True}, text={
        **LFM2, "model_type": "lfm2", "layer_types": ["conv", "full_attention"] * 3 + ["conv"]}),
    Animal("LlavaNextForConditionalGeneration", "llava_next", WRAPPER, {
        "vision_config": {**SIGLIP, "projection_dim": 32}, "image_token_index": 240,
        "image_grid_pinpoints": [[28, 28]], "image_seq_length": 4}, text={
        "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}),
    Animal("PaddleOCRVLForConditionalGeneration", "paddleocr_vl", WRAPPER, {
        **TOKENS, "vision_config": SIGLIP}, text={"model_type": "paddleocr_vl_text", **MROPE}),
    Animal("PaliGemmaForConditionalGeneration", "paligemma", WRAPPER, {
        "vision_config": {**SIGLIP, "projection_dim": 64}, "image_token_index": 240,
        "projection_dim": 64, "hidden_size": 64, "vocab_size": 256,
        "tie_word_embeddings": True}, text={
        "model_type": "gemma2", "tie_word_embeddings": True, "sliding_window": WINDOW,
        "query_pre_attn_scalar": 24, "layer_types": mixed(),
        "use_bidirectional_attention": False}),
    Animal("Qwen2AudioForConditionalGeneration", "qwen2_audio", WRAPPER, {
        "audio_config": AUDIO, "audio_token_index": 240}, text={"model_type": "qwen2"}),
    Animal("Qwen2VLForConditionalGeneration", "qwen2_vl", WRAPPER, {
        **TOKENS, "vision_start_token_id": 242, "vision_end_token_id": 243,
        "vision_config": {**DEEP, "hidden_size": 64}}, text={
        "model_type": "qwen2_vl_text", "head_dim": ABSENT, **MROPE}, sample=True),
)  # fmt: skip
