"""The stages of a rehearsal, in the order in which a start-up meets them, and their time limits.

Imported by the parent and by the child in the target's interpreter: nothing but Python's own.
"""

from __future__ import annotations

from dataclasses import dataclass

TWINS = "twins"
CONFIGS = "configs"
TARGET = "target built"
DRAFTER = "drafter built"
SHARING = "weights shared"
INTERFACE = "interface"
PROFILE = "profile run"
KV_CACHE = "KV cache"
FIRST_TOKEN = "first token"
DRAFTS = "drafts"
SAME_TOKENS = "same tokens"
ENTRY = "aux = layer entry"
REFERENCE = "aux = reference"


@dataclass(frozen=True)
class Stage:
    """`limit`: seconds on a CPU of two cores that is busy; `what`: for a person."""

    name: str
    what: str
    limit: float


STAGES = (
    Stage(TWINS, "the twins' weights are made", 180),
    Stage(CONFIGS, "vLLM takes both configs and the options", 180),
    Stage(TARGET, "the target is built and its weights are loaded", 180),
    Stage(DRAFTER, "the drafter is built and its weights are loaded", 120),
    Stage(SHARING, "the drafter finds the target's embedding and head", 60),
    Stage(INTERFACE, "the target takes the ids of the aux layers", 60),
    Stage(PROFILE, "the profile run: the first forward", 300),
    Stage(KV_CACHE, "the KV cache is laid out", 120),
    Stage(FIRST_TOKEN, "a first token", 300),
    Stage(DRAFTS, "the drafter drafts, the target verifies", 120),
    Stage(SAME_TOKENS, "greedy tokens are those without a drafter", 400),
    Stage(ENTRY, "each aux state is the stream on entry to its layer", 300),
    Stage(REFERENCE, "each aux state is the one Transformers computes", 180),
)
NAMES = tuple(stage.name for stage in STAGES)
LIMITS = {stage.name: stage.limit for stage in STAGES}
