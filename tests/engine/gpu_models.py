"""Tiny checkpoints for the proof on a GPU, their drafters, and what transformers makes of them.

Runs where transformers is, in a process without vLLM: the reference must owe nothing to it.

Words come in pairs whose embeddings differ in the signs of half their entries, and the final norm
turns those signs: undisturbed, a target answers each word with its partner, so the word after the
next is the word itself, which a drafter can read off the target's states. Layers of random weight
disturb this, more or less loudly.
"""

import hashlib
import json
from dataclasses import dataclass, field

import torch
import transformers
from safetensors.torch import save_file

LAYERS, HIDDEN, HEAD, VOCAB, WORDS = 7, 128, 32, 256, 240
LAYER_IDS = tuple(range(LAYERS + 1))
WINDOW = 16  # shorter than the prompts
PROMPTS = [[(37 * n + 11 * step + 5 * (step // 3)) % WORDS for step in range(5 + 4 * n)]
           for n in range(6)]  # fmt: skip
PROBE = [(17 * step + 29 * (step // 5) + 3) % WORDS for step in range(29)]

TEXT = {
    "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 256,
    "num_hidden_layers": LAYERS, "num_attention_heads": HIDDEN // HEAD, "num_key_value_heads": 2,
    "head_dim": HEAD, "max_position_embeddings": 512, "tie_word_embeddings": False,
    "bos_token_id": 250, "eos_token_id": 251, "pad_token_id": 252,
}  # fmt: skip
WINDOWED = {
    "tie_word_embeddings": True, "sliding_window": WINDOW, "query_pre_attn_scalar": 24,
    "layer_types": ["sliding_attention", "full_attention"] * 3 + ["sliding_attention"],
}  # fmt: skip
ROUTED = {
    "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 64, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
    "norm_topk_prob": True, "routed_scaling_factor": 1.5, "use_qk_norm": True,
    "num_nextn_predict_layers": 0, "partial_rotary_factor": 0.5,
}  # fmt: skip
VISION = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2,
    "image_size": 56, "patch_size": 14,
}  # fmt: skip


@dataclass(frozen=True)
class Target:
    """One target.

    Attributes:
        architecture: the name in vLLM's registry, and of the transformers class.
        model_type: of its config.
        config: differences from TEXT; with `text`, the top level's own.
        text: for a wrapper, differences of the text config from TEXT.
        stream: what a layer is given of the residual stream: "hidden", or "hidden + residual".
        gemma: norms of weight 1 + w, a norm behind each layer's halves, embeddings scaled.
        opened: whether the product has to open it.
        loud: how much each half of a layer adds to the stream; so that drafts are right often,
            but not always.
    """

    architecture: str
    model_type: str
    config: dict = field(default_factory=dict)
    text: dict | None = None
    stream: str = "hidden + residual"
    gemma: bool = False
    opened: bool = True
    loud: float = 0.3


TARGETS = {
    "llama": Target("LlamaForCausalLM", "llama", opened=False),
    "glm4_moe": Target("Glm4MoeForCausalLM", "glm4_moe", ROUTED, loud=0.22),
    "gemma2": Target("Gemma2ForCausalLM", "gemma2", WINDOWED, gemma=True, loud=0.8),
    "cohere": Target(
        "CohereForCausalLM", "cohere",
        {"tie_word_embeddings": True, "use_qk_norm": True, "logit_scale": 0.5}, stream="hidden"),
    "gemma3_mm": Target(
        "Gemma3ForConditionalGeneration", "gemma3",
        {"vision_config": VISION, "mm_tokens_per_image": 4, "image_token_index": 253,
         "boi_token_index": 254, "eoi_token_index": 255, "tie_word_embeddings": True},
        text=WINDOWED, gemma=True, loud=1.0),
}  # fmt: skip


def noise(name, shape):
    """From a generator of its own for every tensor: the same values whatever else there is."""
    seed = int(hashlib.sha256(name.encode()).hexdigest()[:12], 16)
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


SIGNS = torch.cat([torch.ones(HIDDEN // 2), -torch.ones(HIDDEN // 2)])


def embedding():
    """A row for each word; each half has mean 0, so that a norm that subtracts the mean is none."""
    halves = noise("words", (VOCAB // 2, 2, HIDDEN // 2))
    halves = halves - halves.mean(-1, keepdim=True)
    first = halves.flatten(1)
    first = first / first.pow(2).mean(-1, keepdim=True).sqrt()
    return torch.stack([first, first * SIGNS], dim=1).flatten(0, 1)


def weights_of(target, tensors):
    """Sets every weight of the language model; `tensors` are its named parameters."""
    scale = HIDDEN**0.5 if target.gemma else 1.0
    zero = -1.0 if target.gemma else 0.0  # what a norm's weight is counted from
    for name, tensor in tensors:
        leaf = name.removesuffix(".weight").rsplit(".", 1)[-1]
        own = noise(name, tensor.shape)
        if "vision" in name or "projector" in name:
            tensor.copy_(own / 10)
        elif leaf in ("embed_tokens", "lm_head"):
            tensor.copy_(embedding())
        elif leaf == "norm":
            tensor.copy_(SIGNS + zero)
        elif target.gemma and leaf in ("post_attention_layernorm", "post_feedforward_layernorm"):
            tensor.copy_(target.loud * scale * (1 + own / 5) + zero)
        elif "norm" in leaf:
            tensor.copy_(1 + own / 5 + zero)
        elif leaf in ("o_proj", "down_proj"):
            tensor.copy_(target.loud * 3 * own / tensor.shape[-1] ** 0.5)
        elif tensor.dim() > 1:
            tensor.copy_(1.5 * own / tensor.shape[-1] ** 0.5)
        else:
            tensor.copy_(own / 5)


def made(target):
    """The transformers model of that target, on the CPU, in float32."""
    if target.text is None:
        settings = {**TEXT, **target.config}
    else:
        settings = {**target.config, "text_config": {**TEXT, **target.text}}
    config = transformers.CONFIG_MAPPING[target.model_type](**settings)
    for part in (config, config.get_text_config()):
        part._attn_implementation = "eager"
    model = getattr(transformers, target.architecture)(config).float().eval()
    with torch.no_grad():
        weights_of(target, model.named_parameters())
        for name, tensor in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                tensor.copy_(noise(name, tensor.shape) / 10)
    return model


def drafter(folder, target):
    """An EAGLE-3 drafter that takes the mean of all states; embedding and head are the target's."""
    inner, wide = TEXT["intermediate_size"], HIDDEN
    config = {
        **TEXT, "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
        "draft_vocab_size": VOCAB, "num_hidden_layers": 1, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "torch_dtype": "float32",
        "eagle_aux_hidden_state_layer_ids": list(LAYER_IDS),
        "num_aux_hidden_states": len(LAYER_IDS),
    }  # fmt: skip
    queries, keys = wide, TEXT["num_key_value_heads"] * HEAD
    shapes = {
        "self_attn.q_proj": (queries, 2 * wide), "self_attn.k_proj": (keys, 2 * wide),
        "self_attn.v_proj": (keys, 2 * wide), "self_attn.o_proj": (wide, queries),
        "mlp.gate_proj": (inner, wide), "mlp.up_proj": (inner, wide),
        "mlp.down_proj": (wide, inner),
    }  # fmt: skip
    tensors = {
        f"midlayer.{name}.weight": noise("drafter " + name, shape) / 10 / shape[1] ** 0.5
        for name, shape in shapes.items()
    }
    for name in ("midlayer.hidden_norm", "midlayer.input_layernorm",
                 "midlayer.post_attention_layernorm", "norm"):  # fmt: skip
        tensors[f"{name}.weight"] = torch.ones(wide)
    tensors["fc.weight"] = torch.eye(wide).repeat(1, len(LAYER_IDS)) / len(LAYER_IDS)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def write(folder, name):
    """Checkpoint and drafter below `folder`; gives back the reference model."""
    target = TARGETS[name]
    model = made(target)
    model.save_pretrained(folder / name / "model")
    path = folder / name / "model/config.json"
    config = json.loads(path.read_text())
    config["architectures"] = [target.architecture]
    path.write_text(json.dumps(config, indent=1))
    drafter(folder / name / "drafter", target)
    return model


class Reference:
    """What transformers computes: the residual stream at every layer id, and the logits."""

    def __init__(self, model):
        self.model, self.found = model, []
        stack = model.get_decoder() if hasattr(model, "get_decoder") else model.model
        stack = getattr(stack, "language_model", stack)
        assert len(stack.layers) == LAYERS
        for layer in stack.layers:
            layer.register_forward_pre_hook(self._entry, with_kwargs=True)
        stack.layers[-1].register_forward_hook(self._end)

    def _entry(self, layer, args, kwargs):
        self.found.append((args[0] if args else kwargs["hidden_states"])[0].clone())

    def _end(self, layer, args, output):
        end = output[0] if isinstance(output, tuple) else output
        self.found.append(end.reshape(self.found[0].shape).clone())

    def __call__(self, tokens):
        """States (layer id, position, entry) and logits (position, word)."""
        self.found = []
        with torch.no_grad():
            out = self.model(input_ids=torch.tensor([tokens]))
        assert len(self.found) == len(LAYER_IDS)
        return torch.stack(self.found), out.logits[0]
