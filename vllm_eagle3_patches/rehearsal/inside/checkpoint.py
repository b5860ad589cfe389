"""Makes the twins' weights, and the states the target must show: with Transformers, without vLLM.

The target's checkpoint is written by Transformers' own class where it has one, so that vLLM loads
it by the names it is published with, and the reference owes nothing to vLLM.
"""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from vllm_eagle3_patches.rehearsal.inside import events, space

TABLES = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_VISION_2_SEQ_MAPPING_NAMES",
)
SPREAD = 0.02  # standard deviation of random weights; of norms and biases around their own value


def main(path: str) -> None:
    request = json.loads(Path(path).read_text())
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
        if space.lacking(folder, str(error)):
            raise
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
    model, whole = build(folder / "target", request["parts"])
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
        if space.lacking(folder, str(error)):
            raise
        return found | {"reference": False, "why": f"{type(error).__name__}: {error}"[:300]}
    save_file(states, folder / "reference.safetensors")
    return found | {"reference": True, "next": tokens}


def build(folder: Path, parts: list[str]) -> tuple[Any, bool]:
    """The model of that config.json with random weights, in float32, and whether it is whole.

    Of a wrapper only the language model is made, where Transformers has a class for it: what it
    writes of the whole is not always by the names the model is published with (Kimi-K2.5 in
    5.19 has `blocks` for the language model's layers).

    `parts` are the keys that lead to the language model's config.

    Raises:
        LookupError: Transformers has no such model.
    """
    import transformers

    raw = json.loads((folder / "config.json").read_text())
    text = raw
    for key in parts:
        text = text[key]
    for kind, config, whole in (*known(raw, folder), *named(text, whole=not parts)):
        return kind(config).float().eval(), whole
    found = raw.get("architectures") or [raw.get("model_type")]
    raise LookupError(f"Transformers {transformers.__version__} has no {found[0]}")


def known(raw: dict[str, Any], folder: Path) -> Iterator[tuple[Any, Any, bool]]:
    """Class and config as Transformers' own tables have them: of the language model, of all."""
    import transformers
    from transformers.models.auto import modeling_auto as auto

    try:
        config = transformers.AutoConfig.from_pretrained(folder)
    except (ValueError, KeyError):  # a model_type it does not know
        return
    tables = [getattr(auto, name, {}) for name in TABLES]
    text = config.get_text_config()
    own = type(text).model_type  # `kimi_k2` is taken for what it is, `deepseek_v3`
    if text is not config and tables[0].get(own):
        text.model_type = own  # by it the names to write are chosen
        yield getattr(transformers, tables[0][own]), text, False
    names = (raw.get("architectures") or [])[:1] + [t.get(config.model_type) for t in tables]
    for name in names:
        if isinstance(name, str) and hasattr(transformers, name):
            yield getattr(transformers, name), config, True


def named(text: dict[str, Any], *, whole: bool) -> Iterator[tuple[Any, Any, bool]]:
    """The class that the language model's config names as its architecture."""
    import transformers

    kind = getattr(transformers, (text.get("architectures") or [""])[0], None)
    if kind is not None:
        settings = {k: v for k, v in text.items() if k != "model_type"}
        yield kind, kind.config_class(**settings), whole


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
