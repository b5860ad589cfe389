"""Tiny checkpoints that behave: a target that mostly counts, and drafters able to predict it.

Runs in an engine environment (torch, safetensors, tokenizers), never in the test process.

The embedding of word x holds the cosines and sines of x at many frequencies, so "the next word" is
a fixed rotation of the stream, and word y's row of the head is the embedding of y - 1: the target
counts upwards, disturbed by real attention and experts of random weight. A drafter that reads the
residual stream can therefore foresee the word after the next one: one rotation ahead with the
target's own head, or none with a head that is shifted by two. It can only do so when the states
it is given really are the residual stream, which is what makes acceptance a measurement.
"""

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file

WORDS, VOCAB, HIDDEN, LAYERS = 240, 256, 128, 8
SPECIALS = {
    "<|media_begin|>": 240, "<|media_content|>": 241, "<|media_pad|>": 242,
    "<|media_end|>": 243, "image": 244, "<unk>": 245, "<s>": 246, "</s>": 247,
}  # fmt: skip
PLACEHOLDER = ("<|media_begin|>", "image", "<|media_content|>", "<|media_pad|>", "<|media_end|>")
MEDIA_PAD = SPECIALS["<|media_pad|>"]
DISTURBANCE = 1.0

TEXT = {
    "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS,
    "intermediate_size": 256, "moe_intermediate_size": 64,
    "num_attention_heads": 4, "num_key_value_heads": 4,
    "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "n_group": 1, "topk_group": 1, "topk_method": "noaux_tc", "scoring_func": "sigmoid",
    "norm_topk_prob": True, "routed_scaling_factor": 1.5, "first_k_dense_replace": 1,
    "moe_layer_freq": 1, "q_lora_rank": 96, "kv_lora_rank": 64, "qk_nope_head_dim": 32,
    "qk_rope_head_dim": 32, "v_head_dim": 32, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "rope_scaling": None, "max_position_embeddings": 512,
    "attention_bias": False, "tie_word_embeddings": False, "num_nextn_predict_layers": 0,
    "bos_token_id": 246, "eos_token_id": 247, "pad_token_id": 245, "torch_dtype": "float32",
}  # fmt: skip
VISION = {
    "model_type": "kimi_k25_vision", "patch_size": 14, "init_pos_emb_height": 8,
    "init_pos_emb_width": 8, "init_pos_emb_time": 4, "pos_emb_type": "divided_fixed",
    "num_attention_heads": 2, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128,
    "merge_kernel_size": [2, 2], "video_attn_type": "spatial_temporal", "merge_type": "sd2_tpool",
    "mm_projector_type": "patchmerger", "mm_hidden_size": 64, "projector_hidden_act": "gelu",
    "projector_ln_eps": 1e-5, "text_hidden_size": HIDDEN,
    # names of the vision fields as the published checkpoint spells them
    "vt_num_attention_heads": 2, "vt_num_hidden_layers": 2, "vt_hidden_size": 64,
    "vt_intermediate_size": 128,
}  # fmt: skip
# Versions before 0.32 load the checkpoint's own processor; 0.32 has one, and reads its settings.
MEDIA = {
    "auto_map": {"AutoImageProcessor": "media_processor.TinyMediaProcessor"},
    "media_proc_cfg": {
        "patch_size": 14, "merge_kernel_size": 2, "temporal_merge_kernel_size": 4,
        "patch_limit_on_one_side": 4, "in_patch_limit": 16, "in_patch_limit_each_frame": 16,
        "in_patch_limit_video": 64, "fixed_output_tokens": None,
        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5],
    },
}  # fmt: skip

# The published Kimi-K2 checkpoint brings its config class as remote code; so does the tiny one.
KIMI_K2_CONFIG = """from transformers import DeepseekV3Config


class KimiK2Config(DeepseekV3Config):
    model_type = "kimi_k2"
"""


class Rotation:
    """Word embeddings by frequency, and the matrix that turns one word into the next."""

    def __init__(self, generator):
        order = torch.randperm((WORDS - 2) // 2, generator=generator)[: HIDDEN // 2] + 1
        self.angles = 2 * math.pi * order.double() / WORDS

    def embedding(self, ahead=0):
        turn = (torch.arange(WORDS).double() + ahead)[:, None] * self.angles[None, :]
        return math.sqrt(2) * torch.cat([turn.cos(), turn.sin()], dim=1).float()

    def step(self):
        cos, sin = torch.diag(self.angles.cos()), torch.diag(self.angles.sin())
        return torch.cat([torch.cat([cos, -sin], 1), torch.cat([sin, cos], 1)]).float()


def random(generator, *shape, gain=1.0):
    return torch.randn(*shape, generator=generator) * gain / math.sqrt(shape[-1])


def with_specials(words, generator):
    return torch.cat([words, torch.randn(VOCAB - WORDS, HIDDEN, generator=generator)])


def decoder(generator, prefix="model."):
    """Weights of a DeepSeek-V3 decoder, in the layout of a published checkpoint."""
    c, weights, rotation = TEXT, {}, Rotation(generator)
    weights["embed_tokens"] = with_specials(rotation.embedding(), generator)
    weights["norm"] = torch.ones(HIDDEN)
    for index in range(LAYERS):
        at = f"layers.{index}."
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[at + norm] = 1 + random(generator, HIDDEN)
        attention = {
            "q_a_proj": (c["q_lora_rank"], HIDDEN),
            "q_b_proj": (256, c["q_lora_rank"]),
            "kv_a_proj_with_mqa": (c["kv_lora_rank"] + 32, HIDDEN),
            "kv_b_proj": (4 * 64, c["kv_lora_rank"]),
            "o_proj": (HIDDEN, 4 * 32),
        }
        for name, shape in attention.items():
            gain = DISTURBANCE if name == "o_proj" else 1.5
            weights[at + "self_attn." + name] = random(generator, *shape, gain=gain)
        weights[at + "self_attn.q_a_layernorm"] = torch.ones(c["q_lora_rank"])
        weights[at + "self_attn.kv_a_layernorm"] = torch.ones(c["kv_lora_rank"])
        if index < c["first_k_dense_replace"]:
            mlps = {"mlp.": c["intermediate_size"]}
        else:
            mlps = {f"mlp.experts.{e}.": 64 for e in range(c["n_routed_experts"])}
            mlps["mlp.shared_experts."] = 64
            weights[at + "mlp.gate"] = random(generator, c["n_routed_experts"], HIDDEN, gain=2)
            weights[at + "mlp.gate.e_score_correction_bias"] = random(generator, 8)
        for name, inner in mlps.items():
            weights[at + name + "gate_proj"] = random(generator, inner, HIDDEN)
            weights[at + name + "up_proj"] = random(generator, inner, HIDDEN)
            weights[at + name + "down_proj"] = random(generator, HIDDEN, inner, gain=DISTURBANCE)
    named = {prefix + name: tensor for name, tensor in weights.items()}
    head = rotation.embedding(ahead=-1) * 12 / HIDDEN
    named[prefix.removesuffix("model.") + "lm_head"] = torch.cat(
        [head, torch.zeros(VOCAB - WORDS, HIDDEN)]
    )
    return {n if n.endswith("_bias") else n + ".weight": t for n, t in named.items()}, rotation


def vision(generator):
    """Weights of the vision tower and projector, in the layout of a published checkpoint."""
    wide, inner, weights = VISION["hidden_size"], VISION["intermediate_size"], {}

    def linear(name, out, into):
        weights[name + ".weight"] = random(generator, out, into)
        weights[name + ".bias"] = random(generator, out)

    def norm(name, size):
        weights[name + ".weight"], weights[name + ".bias"] = torch.ones(size), torch.zeros(size)

    weights["vision_tower.patch_embed.proj.weight"] = random(generator, wide, 3, 14, 14)
    weights["vision_tower.patch_embed.proj.bias"] = random(generator, wide)
    weights["vision_tower.patch_embed.pos_emb.weight"] = random(generator, 8, 8, wide)
    for index in range(VISION["num_hidden_layers"]):
        at = f"vision_tower.encoder.blocks.{index}."
        norm(at + "norm0", wide)
        norm(at + "norm1", wide)
        linear(at + "wqkv", 3 * wide, wide)
        linear(at + "wo", wide, wide)
        linear(at + "mlp.fc0", inner, wide)
        linear(at + "mlp.fc1", wide, inner)
    norm("vision_tower.encoder.final_layernorm", wide)
    norm("mm_projector.pre_norm", wide)
    linear("mm_projector.proj.0", 4 * wide, 4 * wide)
    linear("mm_projector.proj.2", HIDDEN, 4 * wide)
    return weights


def drafter(rotation, generator, own):
    """A LlamaForCausalLMEagle3: with its own embedding and head, or sharing the target's."""
    weights = {
        f"midlayer.{name}.weight": random(generator, *shape, gain=0.1)
        for name, shape in {
            "self_attn.q_proj": (HIDDEN, 2 * HIDDEN), "self_attn.k_proj": (HIDDEN, 2 * HIDDEN),
            "self_attn.v_proj": (HIDDEN, 2 * HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
            "mlp.gate_proj": (2 * HIDDEN, HIDDEN), "mlp.up_proj": (2 * HIDDEN, HIDDEN),
            "mlp.down_proj": (HIDDEN, 2 * HIDDEN),
        }.items()
    }  # fmt: skip
    for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm"):
        weights[f"midlayer.{name}.weight"] = torch.ones(HIDDEN)
    weights["norm.weight"] = torch.ones(HIDDEN)
    ahead = torch.eye(HIDDEN) if own else rotation.step()
    weights["fc.weight"] = torch.cat([ahead, ahead, ahead], dim=1) / 3
    if own:
        words = torch.randn(WORDS, HIDDEN, generator=generator)
        weights["embed_tokens.weight"] = with_specials(words, generator)
        weights["lm_head.weight"] = with_specials(rotation.embedding(ahead=-2), generator) / HIDDEN
    return weights


def drafter_config(layer_ids=None):
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "vocab_size": VOCAB,
        "draft_vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 2 * HIDDEN,
        "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
        "head_dim": 64, "hidden_act": "silu", "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "max_position_embeddings": 512, "tie_word_embeddings": False, "torch_dtype": "float32",
        "bos_token_id": 246, "eos_token_id": 247,
    }  # fmt: skip
    if layer_ids:
        config["eagle_aux_hidden_state_layer_ids"] = list(layer_ids)
    return config


def write(folder, config, weights, **files):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    save_file(
        {n: t.contiguous() for n, t in weights.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(content)


def tokenizer_files():
    words = {f"w{n}": n for n in range(WORDS)} | SPECIALS
    words |= {f"spare{n}": n for n in range(len(words), VOCAB)}
    special = [
        {"id": i, "content": t, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for t, i in SPECIALS.items() if t != "image"
    ]  # fmt: skip
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<unk>"},
    }  # fmt: skip
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>",
              "bos_token": "<s>", "eos_token": "</s>", "model_max_length": 512}  # fmt: skip
    return {"tokenizer__json": json.dumps(tokenizer), "tokenizer_config__json": json.dumps(config)}


def build(root):
    """Write every checkpoint of the suite below root; the same bytes every time."""
    root = Path(root)
    text = {"architectures": ["DeepseekV3ForCausalLM"], **TEXT}
    files = tokenizer_files()
    weights, rotation = decoder(torch.Generator().manual_seed(1))
    write(root / "deepseek_v3", {**text, "model_type": "deepseek_v3"}, weights, **files)
    write(
        root / "kimi_k2",
        {
            **text, "model_type": "kimi_k2",
            "auto_map": {"AutoConfig": "configuration_kimi.KimiK2Config"},
        },
        weights,
        **files,
        configuration_kimi__py=KIMI_K2_CONFIG,
    )  # fmt: skip
    write(
        root / "kimi_k25",
        {
            "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25",
            "text_config": {**text, "model_type": "kimi_k2"}, "vision_config": VISION,
            "media_placeholder_token_id": MEDIA_PAD, "torch_dtype": "float32",
            "tie_word_embeddings": False, "use_unified_vision_chunk": True,
        },
        {f"language_model.{n}": t for n, t in weights.items()}
        | vision(torch.Generator().manual_seed(2)),
        **files,
        media_processor__py=(Path(__file__).parent / "media_processor.py").read_text(),
        preprocessor_config__json=json.dumps(MEDIA),
    )  # fmt: skip
    drafters = {
        "drafter_own": (True, (1, 4, 7)), "drafter_shared": (False, (1, 4, 7)),
        "drafter_ends": (True, (0, 4, LAYERS)), "drafter_last": (True, (1, 4, LAYERS)),
        "drafter_default": (False, None),
    }  # fmt: skip
    for name, (own, layer_ids) in drafters.items():
        weights = drafter(rotation, torch.Generator().manual_seed(3), own)
        write(root / name, drafter_config(layer_ids), weights)
