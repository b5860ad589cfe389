"""What a model's config.json says, whatever layout it has: nested text config, old or new RoPE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Published text_config of moonshotai/Kimi-K2.5, for a check that names no model.  Sources: the
# draft config for it in sgl-project/SpecForge (configs/kimi-k25-eagle3.json: hidden size 7168,
# vocabulary 163840, aux layers 2, 30, 58 of 61), and vLLM's KimiK25Config.
KIMI_K25: Mapping[str, Any] = {
    "model_type": "kimi_k25",
    "text_config": {
        "model_type": "kimi_k2",
        "hidden_size": 7168,
        "num_hidden_layers": 61,
        "vocab_size": 163840,
        "kv_lora_rank": 512,
        "qk_rope_head_dim": 64,
    },
}
LARGEST = 2**31 - 1  # no size of a model is larger
TEXT = ("text_config", "llm_config", "language_config", "thinker_config")


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part that describes the language model, as `get_hf_text_config` finds it."""
    for key in TEXT:
        inner = config.get(key)
        if isinstance(inner, dict):
            return text_config(inner)
    return config


def integer(config: Mapping[str, Any], key: str) -> int | None:
    """A size: a whole number above 0, else None."""
    value = config.get(key)
    return value if type(value) is int and 0 < value <= LARGEST else None


def rope(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """RoPE settings: `rope_parameters` (Transformers 5), or `rope_scaling` (4)."""
    for key in ("rope_parameters", "rope_scaling"):
        value = config.get(key)
        if isinstance(value, dict):
            return value
    return {}


def rope_type(config: Mapping[str, Any]) -> str:
    settings = rope(config)
    return str(settings.get("rope_type", settings.get("type", "default")))


def rope_theta(config: Mapping[str, Any]) -> float | None:
    value = config.get("rope_theta", rope(config).get("rope_theta"))
    return float(value) if isinstance(value, (int, float)) else None


def derived_length(config: Mapping[str, Any]) -> int | None:
    """The longest sequence, as `_get_and_verify_max_len` of vLLM's model config derives it."""
    length = integer(config, "max_position_embeddings")
    settings = rope(config)
    kind = rope_type(config)
    if length is None or kind in ("default", "su", "longrope", "llama3", "mrope"):
        return length
    factor = settings.get("factor", 1.0)
    if kind == "yarn":
        length = integer(settings, "original_max_position_embeddings") or length
    return int(length * factor) if isinstance(factor, (int, float)) else None


def quantization(config: Mapping[str, Any]) -> str | None:
    """The quantization method the config names, of the model or of its text part."""
    for holder in (config, text_config(config)):
        settings = holder.get("quantization_config")
        if isinstance(settings, dict):
            return str(settings.get("quant_method", "unnamed"))
    return None


@dataclass(frozen=True)
class TargetFacts:
    """The target's config; numbers are None where it does not say."""

    config: Mapping[str, Any]
    architecture: str

    @property
    def text(self) -> Mapping[str, Any]:
        return text_config(self.config)

    @property
    def hidden_size(self) -> int | None:
        return integer(self.text, "hidden_size")

    @property
    def layers(self) -> int | None:
        return integer(self.text, "num_hidden_layers")

    @property
    def vocab_size(self) -> int | None:
        return integer(self.text, "vocab_size")

    @property
    def is_mla(self) -> bool:
        return integer(self.text, "kv_lora_rank") is not None

    @property
    def quantization(self) -> str | None:
        return quantization(self.config)

    @property
    def uses_mrope(self) -> bool:
        return "mrope_section" in rope(self.text)

    @property
    def dtype(self) -> str | None:
        for holder in (self.config, self.text):
            for key in ("dtype", "torch_dtype"):
                if isinstance(holder.get(key), str):
                    return str(holder[key])
        return None


def head_dim(config: Mapping[str, Any]) -> int | None:
    """As `LlamaAttention` has it: `head_dim`, else the hidden size over the heads."""
    own = integer(config, "head_dim")
    hidden, heads = integer(config, "hidden_size"), integer(config, "num_attention_heads")
    return own or (hidden // heads if hidden and heads else None)


def kv_heads(config: Mapping[str, Any]) -> int | None:
    return integer(config, "num_key_value_heads") or integer(config, "num_attention_heads")
