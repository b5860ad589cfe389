"""Gate `drafter`: an EAGLE-3 drafter class is in the registry and the proposer accepts it.

The V1 proposer's `propose` asserts `isinstance(self.model, Eagle3LlamaForCausalLM)` up to 0.17.1,
a tuple with the MLA drafter `Eagle3DeepseekV2ForCausalLM` from 0.18.0.
"""

from __future__ import annotations

from vllm_eagle3_patches import registry
from vllm_eagle3_patches.gates import proposer
from vllm_eagle3_patches.gates.base import Edit, Finding, State
from vllm_eagle3_patches.sources import Sources, module_path
from vllm_eagle3_patches.target import Target

NAME = "drafter"


def inspect(sources: Sources, target: Target) -> Finding:
    allowed = proposer.find(sources).accepted
    drafters = [
        entry
        for entry in registry.read(sources).values()
        if entry.table == registry.SPECULATIVE
        and entry.cls.startswith("Eagle3")
        and (allowed is None or entry.cls in allowed)
    ]
    if not drafters:
        detail = "no EAGLE-3 drafter is both registered and accepted by the proposer"
        return Finding(NAME, State.REFUSED, registry.PATH, None, detail)
    for module in {entry.module for entry in drafters}:
        path = module_path(sources, f"vllm.model_executor.models.{module}")
        if path is None:
            detail = f"the registry names {module}, which is not in the package"
            return Finding(NAME, State.REFUSED, registry.PATH, drafters[0].line, detail)
    names = ", ".join(dict.fromkeys(entry.cls for entry in drafters))
    return Finding(NAME, State.NATIVE, registry.PATH, drafters[0].line, f"takes {names}")


def edits(sources: Sources, target: Target) -> list[Edit]:
    return []
