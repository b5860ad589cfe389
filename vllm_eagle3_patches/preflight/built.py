"""What the drafter's class builds from this config: sizes of its modules, read from `__init__`."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_eagle3_patches.preflight.drafter import Drafter, bag
from vllm_eagle3_patches.preflight.facts import TargetFacts
from vllm_eagle3_patches.preflight.statements import run
from vllm_eagle3_patches.preflight.values import MISSING, UNKNOWN, Bag, Made
from vllm_eagle3_patches.sources import ClassSite, Sources, find_classes


def _size(made: object, index: int, *keywords: str) -> int | None:
    if not isinstance(made, Made):
        return None
    for keyword in keywords:
        value = made.argument(index, keyword)
        if value is not MISSING:
            return value if isinstance(value, int) and not isinstance(value, bool) else None
    return None


@dataclass(frozen=True)
class Built:
    """The attributes of the drafter's class (`top`) and of its inner model; unknown is UNKNOWN."""

    top: Bag
    inner: Bag
    inner_site: ClassSite | None

    @property
    def fc_input(self) -> int | None:
        """Columns of `fc.weight`."""
        return _size(self.inner.get("fc"), 0, "input_size", "in_features")

    @property
    def fc_output(self) -> int | None:
        return _size(self.inner.get("fc"), 1, "output_size", "out_features")

    @property
    def draft_vocab(self) -> int | None:
        """Rows of `lm_head.weight`."""
        return _size(self.top.get("lm_head"), 0, "num_embeddings")

    @property
    def vocab(self) -> int | None:
        """Rows of `embed_tokens.weight`."""
        return _size(self.inner.get("embed_tokens"), 0, "num_embeddings")

    @property
    def maps_ids(self) -> bool | None:
        """Whether it has `draft_id_to_target_id`; None where that is not known."""
        value = self.top.get("draft_id_to_target_id")
        return None if value is UNKNOWN else value is not None

    @property
    def uses_aux(self) -> bool | None:
        """False for a head that takes the last layer's output, as EAGLE-1 does."""
        value = self.inner.attributes.get("use_aux_hidden_state", True)
        return value if isinstance(value, bool) else None

    @property
    def layers(self) -> int | None:
        made = self.inner.get("layers")
        items = made.arguments[0] if isinstance(made, Made) and made.arguments else None
        return len(items) if isinstance(items, list) else None

    def lacks(self, name: str) -> bool:
        """Whether the inner model surely has no submodule of this name."""
        if name in self.inner.attributes:
            return self.inner.attributes[name] is None
        return self.inner_site is not None


def build(sources: Sources, drafter: Drafter, target: TargetFacts) -> Built:
    """Runs `__init__` of the drafter's class and of its inner model, on paper."""
    top, inner = Bag(), Bag()
    site = drafter.site
    init = site.method("__init__") if site else None
    if site is None or init is None:
        return Built(top, inner, None)
    config = bag(drafter.config)
    layers = target.layers if target.layers is not None else UNKNOWN
    vocab = target.vocab_size if target.vocab_size is not None else UNKNOWN
    vllm_config = Bag(
        {
            "speculative_config": Bag({"draft_model_config": Bag({"hf_config": config})}),
            "model_config": Bag(
                {
                    "get_vocab_size": lambda: vocab,
                    "get_total_num_hidden_layers": lambda: layers,
                    "get_num_layers": lambda *_: layers,
                }
            ),
        }
    )
    run(init, {"self": top, "vllm_config": vllm_config, "prefix": ""})
    made = top.get("model")
    inner_site = None
    if isinstance(made, Made) and made.name.isidentifier():
        found = find_classes(sources, site.path, made.name)
        inner_site = found[0] if len(found) == 1 else None
    inner_init = inner_site.method("__init__") if inner_site else None
    if inner_init is None:
        return Built(top, inner, None)
    run(inner_init, {"self": inner, "vllm_config": vllm_config, "prefix": ""})
    return Built(top, inner, inner_site)
