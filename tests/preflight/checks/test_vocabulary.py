from __future__ import annotations

import pytest

from preflight.examining import findings, matching, of_class
from preflight.published import (
    GPT_OSS_120B,
    GPT_OSS_NVIDIA,
    LLAMA31_8B,
    LLAMA31_YUHUILI,
    QWEN3_4B,
    QWEN3_SPECFORGE,
    tensors,
    with_settings,
)
from vllm_eagle3_patches.preflight import Severity


@pytest.mark.parametrize("version", ["0.10.2", "0.18.0", "0.32.0"])
@pytest.mark.parametrize("size", [32000, 16000, None])
def test_rows_of_lm_head(version: str, size: int | None) -> None:
    shapes = tensors(QWEN3_SPECFORGE, QWEN3_4B)
    drafter = with_settings(QWEN3_SPECFORGE, draft_vocab_size=size)
    found = matching(findings(version, QWEN3_4B, drafter, shapes), "aux-shape", "lm_head")
    if size is None and version == "0.10.2":
        return  # there the class stops before it
    assert [f.severity for f in found] == ([] if size == 32000 else [Severity.ERROR])


@pytest.mark.parametrize("length", [32000, 16000])
def test_length_of_d2t(length: int) -> None:
    shapes = {**tensors(QWEN3_SPECFORGE, QWEN3_4B), "d2t": (length,)}
    found = matching(findings("0.18.0", QWEN3_4B, QWEN3_SPECFORGE, shapes), "aux-shape", "d2t")
    assert [f.severity for f in found] == ([] if length == 32000 else [Severity.ERROR])


@pytest.mark.parametrize("there", [True, False])
def test_no_d2t(there: bool) -> None:
    shapes = tensors(QWEN3_SPECFORGE, QWEN3_4B)
    if not there:
        del shapes["d2t"]
    found = matching(findings("0.18.0", QWEN3_4B, QWEN3_SPECFORGE, shapes), "aux-shape", "no d2t")
    assert [f.severity for f in found] == ([] if there else [Severity.WARNING])


@pytest.mark.parametrize(("version", "error"), [("0.27.1", False), ("0.30.0", True)])
def test_d2t_of_a_whole_vocabulary(version: str, error: bool) -> None:
    """From 0.30.0 the class makes no map when the vocabularies are equal."""
    shapes = tensors(GPT_OSS_NVIDIA, GPT_OSS_120B)
    assert "d2t" not in shapes
    assert not of_class(findings(version, GPT_OSS_120B, GPT_OSS_NVIDIA, shapes), "aux-shape")
    shapes["d2t"] = (201088,)
    found = of_class(findings(version, GPT_OSS_120B, GPT_OSS_NVIDIA, shapes), "aux-shape")
    assert [f.severity for f in found] == ([Severity.ERROR] if error else [])


@pytest.mark.parametrize("length", [151936, 128256])
def test_length_of_t2d(length: int) -> None:
    shapes = {**tensors(QWEN3_SPECFORGE, QWEN3_4B), "t2d": (length,)}
    found = matching(findings("0.18.0", QWEN3_4B, QWEN3_SPECFORGE, shapes), "aux-shape", "t2d")
    assert [f.severity for f in found] == ([] if length == 151936 else [Severity.WARNING])


@pytest.mark.parametrize("size", [128256, 128000])
def test_vocab_size_of_the_target(size: int) -> None:
    drafter = with_settings(LLAMA31_YUHUILI, vocab_size=size)
    found = matching(findings("0.18.0", LLAMA31_8B, drafter), "aux-shape", "vocab_size is")
    assert [f.severity for f in found] == ([] if size == 128256 else [Severity.WARNING])


@pytest.mark.parametrize(("version", "error"), [("0.10.1", True), ("0.11.1", False)])
def test_draft_vocab_size_without_a_default(version: str, error: bool) -> None:
    whole = with_settings(LLAMA31_YUHUILI, draft_vocab_size=128256)
    assert not of_class(findings(version, LLAMA31_8B, whole), "aux-shape")
    drafter = with_settings(LLAMA31_YUHUILI, draft_vocab_size=None)
    found = matching(findings(version, LLAMA31_8B, drafter), "aux-shape", "no draft_vocab_size")
    assert [f.severity for f in found] == ([Severity.ERROR] if error else [])
