from __future__ import annotations

import pytest

from preflight.examining import findings, of_class
from preflight.published import KIMI_K25, KIMI_MHA, QWEN3_SPECFORGE, QWEN25_VL, with_settings
from vllm_eagle3_patches.preflight import Severity

DRAFTER = with_settings(
    QWEN3_SPECFORGE,
    hidden_size=3584,
    num_attention_heads=28,
    num_key_value_heads=4,
    head_dim=128,
    vocab_size=152064,
    intermediate_size=18944,
    rope_scaling={"type": "mrope", "mrope_section": [16, 24, 24]},
)


@pytest.mark.parametrize("version", ["0.11.1", "0.18.0"])
@pytest.mark.parametrize("named", [True, False])
def test_attribute_of_the_targets_config(version: str, named: bool) -> None:
    model = QWEN25_VL if named else with_settings(QWEN25_VL, image_token_id=None)
    found = of_class(findings(version, model, DRAFTER), "image-token")
    assert [f.severity for f in found] == ([] if named else [Severity.WARNING])
    if found:
        assert "`image_token_id`" in found[0].detail


@pytest.mark.parametrize(("version", "warned"), [("0.11.0", True), ("0.11.1", False)])
def test_other_attribute_before_the_branch(version: str, warned: bool) -> None:
    found = of_class(findings(version, QWEN25_VL, DRAFTER), "image-token")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])


@pytest.mark.parametrize(("version", "warned"), [("0.11.0", True), ("0.11.1", False)])
def test_drafter_takes_no_embeddings(version: str, warned: bool) -> None:
    found = of_class(findings(version, QWEN25_VL, DRAFTER), "drafter")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])


def test_kimi_is_left_to_the_gate() -> None:
    for version in ("0.15.0", "0.18.0"):
        assert not of_class(findings(version, KIMI_K25, KIMI_MHA), "image-token")
