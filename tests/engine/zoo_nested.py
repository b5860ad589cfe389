"""Decoders that lie where the loader of drafters does not look for them.

Nested: the decoder is a part of what the model calls its own. Bare: a multimodal model gives out
its decoder for the language model, beside a head that it keeps. The reference is the
transformers class.
"""

from zoo import ABSENT, BARE, HIDDEN, NESTED, Animal
from zoo_wrappers import SIGLIP

ANIMALS = (
    Animal("OPTForCausalLM", "opt", NESTED, {
        "ffn_dim": 96, "word_embed_proj_dim": HIDDEN, "do_layer_norm_before": True,
        "num_key_value_heads": ABSENT, "head_dim": ABSENT}, kv=(2, 32), sample=True),
    Animal("SmolVLMForConditionalGeneration", "smolvlm", BARE, {
        "vision_config": SIGLIP, "image_token_id": 240, "scale_factor": 2}, text={
        "model_type": "llama"}, sample=True),
)  # fmt: skip
