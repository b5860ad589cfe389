"""The pair to rehearse -> the twins on disk, and the request that the children read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_eagle3_patches.errors import UsageError
from vllm_eagle3_patches.preflight import folder as folders
from vllm_eagle3_patches.preflight.case import Case
from vllm_eagle3_patches.preflight.safetensors import Tensor
from vllm_eagle3_patches.preflight.weights import look
from vllm_eagle3_patches.rehearsal import bounds, drafter, layers, rules, values
from vllm_eagle3_patches.rehearsal.drafter import DrafterTwin
from vllm_eagle3_patches.rehearsal.rules import Twin

TOKENS = 29  # of the prompt: no multiple of a block
LENGTH = 256
BLOCKS = 64  # Gemma-3's kinds of layers need 32 for one request of 256 tokens on a CPU
SPECULATIVE_TOKENS = 3
MODALITIES = ("image", "video", "audio", "vision_chunk")


@dataclass(frozen=True)
class Pair:
    """What is rehearsed.

    Attributes:
        folder: the real target's.
        config: its config.json.
        target: its twin.
        drafter: the drafter's twin.
        parallel: the tensor-parallel size.
    """

    folder: Path
    config: Mapping[str, Any]
    target: Twin
    drafter: DrafterTwin
    parallel: int

    @property
    def multimodal(self) -> bool:
        return any(isinstance(self.config.get(key), dict) for key in rules.VISION)

    @property
    def states(self) -> int:
        """How many aux states the drafter asks for."""
        return drafter.states(self.drafter.config)

    @property
    def is_mla(self) -> bool:
        return "kv_lora_rank" in self.target.text

    @property
    def mixes_attention(self) -> bool:
        """An MLA target with a drafter that has no MLA."""
        return self.is_mla and "kv_lora_rank" not in self.drafter.config


def pair(case: Case, parallel: int | None) -> Pair:
    """The twins of what the user named.

    Raises:
        UsageError: the target is not a folder or a cached model.
        RefusedError: no small twins can be made of these configs.
    """
    if case.model is None:
        raise UsageError(
            "rehearse needs the target's config.json",
            next="vllm-eagle3-patch rehearse MODEL --drafter D, where MODEL is a folder or a "
            "Hugging Face id in the local cache",
        )
    where = folders.locate(case.model, what="model", files=folders.CONFIG)
    config = folders.read_config(where, what="model")
    many = parallel or case.serve.tensor_parallel
    paths = (where / folders.CONFIG, case.drafter / folders.CONFIG)
    twin, small = twins(config, case.raw, look(case.drafter).tensors, many, paths)
    return Pair(where, config, twin, small, many)


def twins(
    config: Mapping[str, Any],
    raw: Mapping[str, Any],
    tensors: Mapping[str, Tensor] | None,
    parallel: int = 1,
    paths: tuple[object, object] = (None, None),
) -> tuple[Twin, DrafterTwin]:
    """The twins of a target's config.json and a drafter's; `paths` are those of the two files.

    Raises:
        RefusedError: a value is not what its name says, or a twin would not be small.
    """
    where, other = paths
    values.target(config, where)
    twin = rules.target(config, parallel)
    bounds.target(twin, parallel, where)
    values.drafter(raw, other)
    values.tensors(tensors or {}, other)
    small = drafter.drafter(raw, twin, tensors, parallel, other)
    bounds.drafter(small, twin, parallel, other)
    return twin, small


def speculative(case: Case, place: Path) -> dict[str, Any]:
    """The speculative configuration of the user, with the twin for the drafter."""
    asked = dict(case.serve.speculative or {})
    asked.setdefault("method", "eagle3")
    asked.setdefault("num_speculative_tokens", SPECULATIVE_TOKENS)
    for key in ("revision", "quantization", "max_model_len"):
        asked.pop(key, None)
    return asked | {"model": str(place / "drafter")}


def write(pair: Pair, place: Path) -> None:
    """config.json of both twins."""
    for name, config in (("target", pair.target.config), ("drafter", pair.drafter.config)):
        (place / name).mkdir(exist_ok=True)
        (place / name / folders.CONFIG).write_text(json.dumps(config, indent=1))


def prompt(vocab: int) -> list[int]:
    """Token ids without meaning, none of which a tokenizer would call special: from the first
    half of the vocabulary, behind its first few hundred."""
    first, last = min(300, vocab // 4), max(vocab // 2, min(vocab, 2))
    return [first + (997 * n * n + 31 * n) % max(last - first, 1) for n in range(TOKENS)]


def request(
    case: Case, pair: Pair, place: Path, *, eager: bool, words: list[str]
) -> dict[str, Any]:
    """What the children are told."""
    text = pair.target.text
    dtype = case.serve.options.get("dtype", "auto")
    if dtype == "auto":
        dtype = next(
            (h[k] for h in (pair.config, pair.target.real) for k in ("dtype", "torch_dtype")
             if isinstance(h.get(k), str)), "bfloat16",
        )  # fmt: skip
    return {
        "folder": str(place),
        "events": str(place / "events.jsonl"),
        "seed": 1,
        "target": str(place / "target"),
        "drafter": str(place / "drafter"),
        "tensors": {name: list(shape) for name, shape in pair.drafter.tensors.items()},
        "layers": layers.count(text),
        "parts": list(pair.target.parts),
        "prompt": prompt(rules.number(text, ("vocab_size",)) or 1000),
        "length": LENGTH,
        "blocks": BLOCKS,
        "memory": 0.2,
        "parallel": pair.parallel,
        "dtype": {"half": "float16", "float": "float32"}.get(dtype, dtype),
        "eager": eager,
        "multimodal": dict.fromkeys(MODALITIES, 0) if pair.multimodal else None,
        "words": words,
        "started_in": str(Path.cwd()),
        "speculative": speculative(case, place),
    }


def variables(pair: Pair, *, cpu: bool) -> dict[str, str]:
    """What a CPU build needs in its environment."""
    if not cpu:
        return {}
    needed = {
        "OMP_NUM_THREADS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "MALLOC_MMAP_THRESHOLD_": "1048576",  # a tensor's memory goes back when it does
    }
    return needed | {"VLLM_MLA_DISABLE": "1"} if pair.mixes_attention else needed
