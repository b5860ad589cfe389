"""Makes the twins' weights, and the states the target must show: with Transformers, without vLLM.

The target's checkpoint is written by Transformers' own class where it has one, so that vLLM loads
it by the names it is published with, and the reference owes nothing to vLLM.
"""

from __future__ import annotations

import json
import math
import traceback
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from vllm_eagle3_patches.rehearsal.inside import alive, events

SPREAD = 0.02  # standard deviation of random weights; of norms and biases around their own value


def main(path: str) -> None:
    request = json.loads(Path(path).read_text())
    alive.end_with_parent(request["folder"])
    events.to(request["events"])
    torch.manual_seed(request["seed"])
    torch.set_grad_enabled(False)
    folder = Path(request["folder"])
    if request.get("tensors"):
        save_drafter(request["tensors"], folder / "drafter")
    try:
        found = target(folder, request)
    except Exception as error:  # Transformers lacks the class, or cannot build this one
        traceback.print_exc()
        found = {"checkpoint": False, "why": f"{type(error).__name__}: {error}"[:300]}
    (folder / "checkpoint.json").write_text(json.dumps(found))
    events.send("checkpoint", **found)


def save_drafter(shapes: dict[str, list[int]], folder: Path) -> None:
    tensors = {name: drafter_tensor(name, shape, shapes) for name, shape in shapes.items()}
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def drafter_tensor(name: str, shape: list[int], shapes: dict[str, list[int]]) -> Any:
    """Random weights; `d2t` and `t2d` spread the draft vocabulary over the whole one."""
    if name in ("d2t", "t2d") and "t2d" in shapes and "d2t" in shapes:
        draft, vocab = shapes["d2t"][0], shapes["t2d"][0]
        ids = torch.arange(draft) * vocab // max(draft, 1)
        if name == "d2t":
            return ids - torch.arange(draft)
        return torch.zeros(vocab, dtype=torch.bool).index_fill_(0, ids.clamp(max=vocab - 1), True)
    if name == "d2t":
        return torch.zeros(shape, dtype=torch.int64)
    if name == "t2d":
        return torch.ones(shape, dtype=torch.bool)
    if "norm" in name and len(shape) == 1:
        return torch.ones(shape) + SPREAD * torch.randn(shape)
    if len(shape) == 1:
        return SPREAD * torch.randn(shape)
    return torch.randn(shape) / math.sqrt(shape[-1])


def target(folder: Path, request: dict[str, Any]) -> dict[str, Any]:
    model, whole = build(folder / "target")
    for parameter in model.parameters():
        if parameter.dim() == 1:  # else a norm that is left out would not show
            parameter.data += SPREAD * torch.randn_like(parameter)
    made = folder / "made"
    model.save_pretrained(made, max_shard_size="100MB")  # copied in memory as they go
    for file in made.glob("model*.safetensors*"):
        file.rename(folder / "target" / file.name)
    size = sum(p.numel() for p in model.parameters())
    found = {
        "checkpoint": "whole" if whole else "text",
        "class": type(model).__name__,
        "parameters": size,
    }
    try:
        states, tokens = reference(model, request["layers"], request["prompt"])
    except Exception as error:
        traceback.print_exc()
        return found | {"reference": False, "why": f"{type(error).__name__}: {error}"[:300]}
    save_file(states, folder / "reference.safetensors")
    return found | {"reference": True, "next": tokens}


def build(folder: Path) -> tuple[Any, bool]:
    """The model of that config.json with random weights, in float32, and whether it is whole.

    Of a wrapper only the language model is made, where Transformers has a class for it: what it
    writes of the whole is not always by the names the model is published with (Kimi-K2.5 in
    5.19 has `blocks` for the language model's layers).
    """
    import transformers
    from transformers import AutoConfig
    from transformers.models.auto import modeling_auto as auto

    config = AutoConfig.from_pretrained(folder)
    named = json.loads((folder / "config.json").read_text()).get("architectures") or []
    mappings = (
        "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
        "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
        "MODEL_FOR_VISION_2_SEQ_MAPPING_NAMES",
    )
    text = config.get_text_config()
    kind = type(text).model_type  # `kimi_k2` is taken for what it is, `deepseek_v3`
    alone = getattr(auto, mappings[0]).get(kind) if text is not config else None
    if alone is not None and hasattr(transformers, alone):
        text.model_type = kind  # by it the names to write are chosen
        return getattr(transformers, alone)(text).float().eval(), False
    names = named[:1] + [getattr(auto, m, {}).get(config.model_type) for m in mappings]
    for name in names:
        kind = getattr(transformers, name, None) if isinstance(name, str) else None
        if kind is not None:
            return kind(config).float().eval(), True
    raise LookupError(f"Transformers {transformers.__version__} has no {named[:1]}")


def decoder(model: Any, layers: int) -> Any:
    """The module whose `layers` are the language model's."""
    found = [
        module
        for name, module in model.named_modules()
        if len(getattr(module, "layers", None) or ()) == layers
        and hasattr(module, "norm")
        and "vision" not in name
        and "visual" not in name
    ]
    if not found:
        raise LookupError(f"no decoder with {layers} layers in {type(model).__name__}")
    return found[-1]


def reference(model: Any, layers: int, prompt: list[int]) -> tuple[dict[str, Any], int]:
    """The residual stream on entry to each layer and after the last, and the next token."""
    inner = decoder(model, layers)
    states: dict[str, Any] = {}

    def entry(index: int) -> Any:
        def hook(_: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            hidden = args[0] if args else kwargs["hidden_states"]
            states[str(index)] = hidden[0].clone()

        return hook

    for index, layer in enumerate(inner.layers):
        layer.register_forward_pre_hook(entry(index), with_kwargs=True)
    inner.norm.register_forward_pre_hook(entry(layers), with_kwargs=True)
    out = model(input_ids=torch.tensor([prompt]), use_cache=False)
    return states, int(out.logits[0, -1].argmax())
