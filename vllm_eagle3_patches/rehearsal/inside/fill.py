"""The target's weights without a whole checkpoint: random, and the language model's own if any.

The checkpoint of a language model is loaded into the wrapper around it by vLLM's own
`load_weights`, under the prefix that the wrapper's checkpoints have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vllm_eagle3_patches.rehearsal.inside.events import Failed

# How published checkpoints name the language model's `model.layers.0.…` inside a wrapper.
PREFIXES = ("language_model.", "", "model.language_model.", "llm.", "text_model.")


def target(load_config: Any, model: Any, model_config: Any, *, text: bool) -> None:
    """Fills the model; with `text` from the checkpoint too.

    Raises:
        Failed: vLLM's `load_weights` takes the language model under none of the prefixes.
    """
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

    DummyModelLoader(load_config).load_weights(model, model_config)
    if not text:
        return
    said = []
    for prefix in PREFIXES:
        try:
            model.load_weights(_weights(Path(model_config.model), prefix))
        except Exception as error:  # names of another kind of checkpoint
            said.append(f"{prefix!r}: {type(error).__name__}: {error}")
        else:
            print(f"rehearsal: the language model's weights were taken under {prefix!r}")
            return
    raise Failed(f"the language model's weights were not taken: {'; '.join(said)}")


def _weights(folder: Path, prefix: str) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118
                yield prefix + name, tensors.get_tensor(name)
