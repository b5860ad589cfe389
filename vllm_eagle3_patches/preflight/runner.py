"""Which model runner a start-up may take: V1, V2, or either where that is not certain.

`VLLM_USE_V2_MODEL_RUNNER` decides when it is set.  Else, by the property `use_v2_model_runner` of
`VllmConfig` (`vllm/config/vllm.py`): without it V1; where a list of architectures stands beside
it, V2 for those of the list; later, V2 whenever nothing unsupported is asked for.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.sources import Sources

VARIABLE = "VLLM_USE_V2_MODEL_RUNNER"
CONFIG = "vllm/config/vllm.py"
V2_AUX = "vllm/v1/worker/gpu/spec_decode/eagle/eagle3_utils.py"
V1, V2 = "V1", "V2"
DEFAULTS = re.compile(
    r"^DEFAULT_V2_MODEL_RUNNER_ARCHITECTURES = frozenset\((.*?)\)$", re.MULTILINE | re.DOTALL
)


def runners(sources: Sources, architecture: str, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The runners that may serve this target; the likelier first."""
    if not sources.exists(V2_AUX):
        return (V1,)
    asked = environment.get(VARIABLE, os.environ.get(VARIABLE, "")).strip().lower()
    if asked:
        return (V2,) if asked in ("1", "true") else (V1,)
    source = snippets.text(sources, CONFIG)
    if "def use_v2_model_runner" not in source:
        return (V1,)
    listed = DEFAULTS.search(source)
    dense_too = "or not model_config.is_moe" in source  # 0.26.0-0.28.0: V2 for dense models too
    if listed is not None and f'"{architecture}"' not in listed[1] and not dense_too:
        return (V1,)
    return (V2, V1)
