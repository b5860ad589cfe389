"""Makes the zoo's checkpoints with transformers alone, and the states they must produce.

    python zoo_reference.py FOLDER ARCHITECTURE ...

Runs in an engine environment, in a process without vLLM: the reference must owe nothing to it.
A layer of a transformers model takes the whole residual stream as its first argument, whatever
the architecture, and gives the whole stream back.
"""

import json
import sys
import traceback
from pathlib import Path

import torch
import transformers
import zoo
import zoo_weights
from safetensors.torch import load_file, save_file
from transformers import CONFIG_MAPPING

ZOO = zoo.everything()
PROMPTS = [[(37 * n + 11 * step + 5 * (step // 3)) % 240 for step in range(4 + 2 * n)]
           for n in range(6)]  # fmt: skip
TOKENS = [(17 * step + 29 * (step // 5) + 3) % 240 for step in range(29)]

CONFIGURATION = """from transformers import PretrainedConfig


class TinyConfig(PretrainedConfig):
    model_type = "{}"

    def __init__(self, **values):
        for name, value in values.items():
            if name.endswith("_config") and isinstance(value, dict):
                values[name] = PretrainedConfig(**value)
        super().__init__(**values)
"""


def made(animal):
    config = CONFIG_MAPPING[animal.model_type](**settings(animal))
    if animal.model_type == "bloom":
        transformers.models.bloom.modeling_bloom.BloomGelu = torch.nn.GELU
    for part in (config, config.get_text_config()):
        part._attn_implementation = "eager"
    cls = getattr(transformers, animal.hf)
    model = cls(config).float().eval()
    with torch.no_grad():
        zoo_weights.randomise(model.named_parameters())
        zoo_weights.be_loud(model.get_output_embeddings().weight)
    return model


def settings(animal):
    if animal.text is None:
        return merged(zoo.TEXT, animal.config)
    return merged({"text_config": merged(zoo.TEXT, animal.text)}, animal.config)


def merged(base, changes):
    return {k: v for k, v in {**base, **changes}.items() if v is not zoo.ABSENT}


def layers(model):
    found = [m for name, m in model.named_modules()
             if isinstance(m, torch.nn.ModuleList) and len(m) == zoo.LAYERS
             and name.rsplit(".", 1)[-1] in ("layers", "h", "blocks")]  # fmt: skip
    assert len(found) == 1, [name for name, _ in model.named_modules()]
    return found[0]


def states(model):
    """The residual stream on entry to each layer, and after the last one."""
    found = []

    def entry(layer, args, kwargs):
        found.append((args[0] if args else kwargs["hidden_states"])[0].clone())

    def end(layer, args, output):
        found.append((output[0] if isinstance(output, tuple) else output).reshape(found[0].shape))

    stack = layers(model)
    for layer in stack:
        layer.register_forward_pre_hook(entry, with_kwargs=True)
    stack[-1].register_forward_hook(end)
    with torch.no_grad():
        model(input_ids=torch.tensor([TOKENS]))
    assert len(found) == zoo.LAYERS + 1, len(found)
    return found


def drafter(folder, animal):
    """A Llama drafter that reads every layer's state; it has neither embedding nor head."""
    heads, size = animal.kv
    wide = zoo.HIDDEN
    config = {
        **zoo.TEXT, "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama",
        "draft_vocab_size": zoo.VOCAB, "num_hidden_layers": 1, "num_attention_heads": 2 * heads,
        "num_key_value_heads": heads, "head_dim": size, "hidden_act": "silu",
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "torch_dtype": "float32",
        "eagle_aux_hidden_state_layer_ids": list(animal.layer_ids),
        "num_aux_hidden_states": len(animal.layer_ids),
    }  # fmt: skip
    inner, queries, keys = zoo.TEXT["intermediate_size"], 2 * heads * size, heads * size
    shapes = {
        "self_attn.q_proj": (queries, 2 * wide), "self_attn.k_proj": (keys, 2 * wide),
        "self_attn.v_proj": (keys, 2 * wide), "self_attn.o_proj": (wide, queries),
        "mlp.gate_proj": (inner, wide), "mlp.up_proj": (inner, wide),
        "mlp.down_proj": (wide, inner),
    }  # fmt: skip
    weights = {f"midlayer.{name}.weight": torch.zeros(shape) for name, shape in shapes.items()}
    weights["fc.weight"] = torch.zeros(wide, wide * len(animal.layer_ids))
    for name in ("midlayer.hidden_norm", "midlayer.input_layernorm",
                 "midlayer.post_attention_layernorm", "norm"):  # fmt: skip
        weights[f"{name}.weight"] = torch.ones(wide)
    zoo_weights.randomise(weights.items())
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def renamed(folder, animal):
    """The checkpoint under the architecture's name in vLLM."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["architectures"] = [animal.architecture]
    path.write_text(json.dumps(config, indent=1))
    path = folder / "model.safetensors"
    weights = load_file(path)
    named = dict(weights)
    for before, after in animal.rename:
        named = {name.replace(before, after): t for name, t in named.items()}
    assert len(named) == len(weights)
    if set(named) != set(weights):
        path.unlink()
        save_file(named, path, {"format": "pt"})


def make(folder, animal):
    """The checkpoint, its drafter, and the states where transformers has the class."""
    drafter(folder / "drafter", animal)
    if animal.hf is None:
        only_config(folder / "model", animal)
        return
    model = made(animal)
    model.save_pretrained(folder / "model")
    renamed(folder / "model", animal)
    found = states(model)
    save_file({str(k): state for k, state in enumerate(found)}, folder / "states.safetensors")


def only_config(folder, animal):
    """A config; it brings its class as remote code, as published ones do, where vLLM has none."""
    config = {
        **settings(animal), "architectures": [animal.architecture],
        "model_type": animal.model_type, "torch_dtype": "float32",
    }  # fmt: skip
    if animal.model_type.startswith("tiny_"):
        config["auto_map"] = {"AutoConfig": "configuration_tiny.TinyConfig"}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    (folder / "configuration_tiny.py").write_text(CONFIGURATION.format(animal.model_type))


def main():
    root, failed = Path(sys.argv[1]), {}
    for name in sys.argv[2:]:
        try:
            make(root / name, ZOO[name])
        except Exception:  # told once all are done
            failed[name] = traceback.format_exc()
    facts = {"prompts": PROMPTS, "tokens": TOKENS, "failed": failed,
             "transformers": transformers.__version__}  # fmt: skip
    (root / "zoo.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
