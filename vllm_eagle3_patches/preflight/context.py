"""One combination under examination: everything a check may look at, each worked out once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from vllm_eagle3_patches.preflight import aux, capture, runner
from vllm_eagle3_patches.preflight.aux import Ids, Named
from vllm_eagle3_patches.preflight.built import Built, build
from vllm_eagle3_patches.preflight.capture import Capture
from vllm_eagle3_patches.preflight.command import Serve
from vllm_eagle3_patches.preflight.drafter import Drafter
from vllm_eagle3_patches.preflight.facts import TargetFacts, derived_length
from vllm_eagle3_patches.preflight.safetensors import Tensor
from vllm_eagle3_patches.sources import Sources


@dataclass(frozen=True, eq=False)
class Context:
    """A target, a drafter, a command line and an installed vLLM."""

    sources: Sources
    version: str
    target: TargetFacts
    drafter: Drafter
    serve: Serve

    @property
    def speculative(self) -> Mapping[str, Any]:
        return self.serve.speculative or {}

    @cached_property
    def runners(self) -> tuple[str, ...]:
        return runner.runners(self.sources, self.target.architecture, self.serve.environment)

    @cached_property
    def built(self) -> Built:
        return build(self.sources, self.drafter, self.target)

    @cached_property
    def capture(self) -> Capture | None:
        return capture.of_target(self.sources, self.target.architecture)

    @cached_property
    def named_ids(self) -> Named | None:
        return aux.named(self.drafter.raw)

    @cached_property
    def default_ids(self) -> Ids | None:
        layers = self.target.layers
        if layers is None:
            return None
        return aux.default(self.sources, self.target.architecture, layers)

    @cached_property
    def read_ids(self) -> dict[str, object]:
        """What each possible runner takes from the drafter's config; None where it takes none."""
        return {name: aux.read_by(self.sources, name, self.drafter) for name in self.runners}

    @cached_property
    def taken_ids(self) -> dict[str, Ids | None]:
        """The ids each possible runner will ask for; None where that is not known."""
        taken: dict[str, Ids | None] = {}
        for name, found in self.read_ids.items():
            whole = isinstance(found, tuple) and all(type(i) is int for i in found)
            taken[name] = self.default_ids if found is None else cast(Ids, found) if whole else None
        return taken

    @cached_property
    def unseen(self) -> tuple[str, ...]:
        """What was not compared because it is not known: sentences, each with what to give."""
        return tuple(_unseen(self.target, self.drafter))

    def tensor(self, *names: str) -> Tensor | None:
        """The first of these tensors the drafter's files have."""
        tensors = self.drafter.weights.tensors or {}
        return next((tensors[name] for name in names if name in tensors), None)

    def has_tensor(self, part: str) -> bool | None:
        """Whether some tensor's name contains `part`; None where the names are not known."""
        tensors = self.drafter.weights.tensors
        return None if tensors is None else any(part in name for name in tensors)

    @cached_property
    def max_model_len(self) -> int | None:
        """The longest sequence the server is to take."""
        return self.serve.integer("max-model-len") or derived_length(self.target.text)

    @cached_property
    def dtype(self) -> str | None:
        asked = self.serve.options.get("dtype", "auto")
        return self.target.dtype if asked == "auto" else asked


def _unseen(target: TargetFacts, drafter: Drafter) -> Iterator[str]:
    sizes = {
        "hidden_size": target.hidden_size,
        "num_hidden_layers": target.layers,
        "vocab_size": target.vocab_size,
    }
    missing = [name for name, size in sizes.items() if size is None]
    if missing and not target.config:
        yield (
            f"nothing was compared with the target's sizes: {target.architecture} is a name "
            "without a config.json; give --model a folder or cached id that has one"
        )
    elif missing:
        yield (
            f"nothing was compared with the target's {', '.join(missing)}: its config.json does "
            "not give them; give --model a folder with the whole config.json"
        )
    if drafter.weights.tensors is None and not drafter.weights.problems:
        yield (
            "the drafter's tensors were not compared: "
            f"{', '.join(drafter.weights.unread[:3])} is no safetensors file; convert it, or "
            "fetch the safetensors"
        )
