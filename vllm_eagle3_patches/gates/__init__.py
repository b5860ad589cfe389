"""The gates, in the order in which a start-up of vLLM meets them."""

from __future__ import annotations

from typing import cast

from vllm_eagle3_patches.gates import (
    aux_capture,
    drafter,
    image_token,
    interface,
    model_type,
    weight_sharing,
)
from vllm_eagle3_patches.gates.base import Gate

GATES: tuple[Gate, ...] = tuple(
    cast(Gate, module)
    for module in (model_type, drafter, image_token, weight_sharing, interface, aux_capture)
)
NAMES: tuple[str, ...] = tuple(gate.NAME for gate in GATES)
