"""What an architecture that is proved on the engine is described by.

Plain data, in `zoo_decoders`, `zoo_wrappers`, `zoo_nested` and `zoo_hooked`; `zoo_reference` makes
checkpoints of it, `zoo_child` boots them. Every model has seven layers, so that the default layer
ids (2, 3, 4) differ, and a stream of 64.
"""

from dataclasses import dataclass, field

VERSION = "0.32.0"
LAYERS, HIDDEN, VOCAB = 7, 64, 256
WINDOW, BEYOND = 16, 64  # shorter and longer than the prompts

TEXT = {
    "vocab_size": VOCAB, "hidden_size": HIDDEN, "intermediate_size": 96,
    "num_hidden_layers": LAYERS, "num_attention_heads": 2, "num_key_value_heads": 1,
    "head_dim": 32, "max_position_embeddings": 256, "tie_word_embeddings": False,
    "bos_token_id": 250, "eos_token_id": 251, "pad_token_id": 252,
}  # fmt: skip
# transformers turns some wrappers' names back twice as it saves them
TWICE = ("language_model.model.model.", "language_model.model.")
ABSENT = ...  # as a value: the config has no such key


def mixed(sliding="sliding_attention", every=2):
    """Layer types: each `every`-th is full attention."""
    return ["full_attention" if n % every else sliding for n in range(LAYERS)]


@dataclass(frozen=True)
class Animal:
    """One architecture.

    Attributes:
        architecture: the name in vLLM's registry.
        model_type: of its config.
        shape: what kind of decoder it is; the sample takes one of each.
        config: differences from TEXT; with `text`, the top level's own.
        text: for wrappers, differences of the text config from TEXT, with its `model_type`.
        reference: the transformers class, where it is not the architecture's own name; None for
            hooks in the engine, that read what a layer's first norm is given.
        kv: heads and head size of the cache, which the drafter's must fit.
        first: the lowest layer id that can be asked for; upstream's DeepSeek fails at 0.
        rename: what transformers calls some of the weights, and what published ones call them.
        sample: whether the short run takes it.
    """

    architecture: str
    model_type: str
    shape: str
    config: dict = field(default_factory=dict)
    text: dict | None = None
    reference: str | None = ""
    kv: tuple[int, int] = (1, 32)
    first: int = 0
    rename: tuple[tuple[str, str], ...] = (TWICE,)
    sample: bool = False

    @property
    def hf(self):
        return self.architecture if self.reference == "" else self.reference

    @property
    def multimodal(self):
        return self.text is not None or self.shape == BARE

    @property
    def layer_ids(self):
        return tuple(range(self.first, LAYERS + 1))


DEFERRED, STALE, SINGLE = "deferred residual", "stale residual", "no residual"
HYBRID, WRAPPER, NATIVE = "hybrid", "wrapper", "native"
NESTED, BARE = "nested decoder", "bare decoder"
CLAIMS, CAPTURES = "claims, does not capture", "captures, does not claim"


def everything():
    """All of the zoo by architecture."""
    import zoo_decoders
    import zoo_hooked
    import zoo_nested
    import zoo_wrappers

    modules = (zoo_decoders, zoo_wrappers, zoo_nested, zoo_hooked)
    animals = (animal for module in modules for animal in module.ANIMALS)
    return {animal.architecture: animal for animal in animals}
