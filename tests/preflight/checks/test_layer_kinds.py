from __future__ import annotations

import pytest

from preflight.examining import findings, matching, of_class
from preflight.published import LLAMA31_8B, LLAMA31_YUHUILI, with_settings
from vllm_eagle3_patches.preflight import Severity


@pytest.mark.parametrize(("version", "error"), [("0.10.1", True), ("0.10.2", False)])
def test_layer_types(version: str, error: bool) -> None:
    assert not of_class(findings(version, LLAMA31_8B, LLAMA31_YUHUILI), "drafter")
    drafter = with_settings(LLAMA31_YUHUILI, layer_types=["full_attention"])
    found = matching(findings(version, LLAMA31_8B, drafter), "drafter", "IndexError")
    assert [f.severity for f in found] == ([Severity.ERROR] if error else [])


@pytest.mark.parametrize("version", ["0.24.0", "0.27.1", "0.32.0"])
def test_class_with_a_bounds_check(version: str) -> None:
    drafter = with_settings(
        LLAMA31_YUHUILI,
        architectures=["Eagle3Qwen3ForCausalLM"],
        layer_types=["sliding_attention"],
    )
    assert not matching(findings(version, LLAMA31_8B, drafter), "drafter", "IndexError")
