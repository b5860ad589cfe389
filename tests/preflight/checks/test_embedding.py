from __future__ import annotations

import pytest

from preflight.examining import findings, matching, of_class
from preflight.published import (
    GPT_OSS_120B,
    GPT_OSS_NVIDIA,
    LLAMA31_8B,
    LLAMA31_YUHUILI,
    LLAMA33_70B,
    LLAMA33_YUHUILI,
    tensors,
    with_settings,
)
from vllm_eagle3_patches.preflight import Severity


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("0.11.0", Severity.WARNING),  # loaded on its own: nothing to load
        ("0.11.1", Severity.ERROR),
        ("0.18.0", Severity.ERROR),
        ("0.27.1", Severity.WARNING),  # the widths are compared: kept, uninitialised
    ],
)
def test_narrow_drafter_needs_its_own_embedding(version: str, severity: Severity) -> None:
    own = tensors(LLAMA33_YUHUILI, LLAMA33_70B, embedding=True)
    assert not of_class(findings(version, LLAMA33_70B, LLAMA33_YUHUILI, own), "weight-sharing")
    shared = tensors(LLAMA33_YUHUILI, LLAMA33_70B)
    found = of_class(findings(version, LLAMA33_70B, LLAMA33_YUHUILI, shared), "weight-sharing")
    assert [f.severity for f in found] == [severity]


@pytest.mark.parametrize("rows", [128256, 32000])
def test_shape_of_the_own_embedding(rows: int) -> None:
    shapes = {**tensors(LLAMA31_YUHUILI, LLAMA31_8B), "embed_tokens.weight": (rows, 4096)}
    found = matching(
        findings("0.18.0", LLAMA31_8B, LLAMA31_YUHUILI, shapes), "aux-shape", "embed_tokens"
    )
    assert [f.severity for f in found] == ([] if rows == 128256 else [Severity.ERROR])


@pytest.mark.parametrize("embedding", [True, False])
@pytest.mark.parametrize("stages", [1, 2])
def test_pipeline_does_not_share_the_embedding(embedding: bool, stages: int) -> None:
    shapes = tensors(LLAMA31_YUHUILI, LLAMA31_8B, embedding=embedding)
    args = f"--pipeline-parallel-size {stages}"
    found = of_class(
        findings("0.18.0", LLAMA31_8B, LLAMA31_YUHUILI, shapes, args=args), "weight-sharing"
    )
    assert bool(found) is (stages > 1 and not embedding)


@pytest.mark.parametrize(
    ("version", "warned"), [("0.10.2", True), ("0.11.0", True), ("0.11.1", False)]
)
def test_own_embedding_is_overridden(version: str, warned: bool) -> None:
    """vLLM PR 28549."""
    shapes = tensors(LLAMA31_YUHUILI, LLAMA31_8B, embedding=True)
    found = matching(
        findings(version, LLAMA31_8B, LLAMA31_YUHUILI, shapes), "weight-sharing", "embed_tokens"
    )
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])


@pytest.mark.parametrize(
    ("version", "warned"), [("0.10.2", False), ("0.11.0", True), ("0.11.1", False)]
)
def test_own_head_is_overridden(version: str, warned: bool) -> None:
    found = matching(findings(version, GPT_OSS_120B, GPT_OSS_NVIDIA), "weight-sharing", "lm_head")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])


@pytest.mark.parametrize(("version", "warned"), [("0.10.2", True), ("0.11.0", False)])
def test_no_head(version: str, warned: bool) -> None:
    drafter = with_settings(LLAMA31_YUHUILI, draft_vocab_size=128256)
    shapes = tensors(drafter, LLAMA31_8B)
    if version == "0.10.2":
        drafter = with_settings(drafter, architectures=["LlamaForCausalLMEagle3"])
    del shapes["lm_head.weight"]
    found = matching(findings(version, LLAMA31_8B, drafter, shapes), "weight-sharing", "no lm_head")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])


@pytest.mark.parametrize("size", [32000, 128256])
def test_no_head_for_fewer_ids(size: int) -> None:
    drafter = with_settings(LLAMA31_YUHUILI, draft_vocab_size=size)
    shapes = tensors(drafter, LLAMA31_8B)
    del shapes["lm_head.weight"]
    found = of_class(findings("0.18.0", LLAMA31_8B, drafter, shapes), "weight-sharing")
    assert [f.severity for f in found] == ([Severity.WARNING] if size == 32000 else [])
