from __future__ import annotations

import pytest

from preflight.examining import findings, of_class
from preflight.published import (
    DEEPSEEK_V3,
    KIMI_K25,
    KIMI_MLA,
    QWEN3_4B,
    QWEN3_SPECFORGE,
    with_settings,
)
from vllm_eagle3_patches.preflight import Severity


@pytest.mark.parametrize("version", ["0.18.0", "0.32.0"])
@pytest.mark.parametrize(
    ("args", "warned"),
    [("--dtype float16", True), ("--dtype half", True), ("--dtype bfloat16", False), ("", False)],
)
def test_float16_on_deepseek(version: str, args: str, warned: bool) -> None:
    found = of_class(findings(version, KIMI_K25, KIMI_MLA, args=args), "aux-capture")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])


def test_float16_of_the_checkpoint() -> None:
    model = with_settings(DEEPSEEK_V3, torch_dtype="float16")
    drafter = with_settings(KIMI_MLA, vocab_size=129280, draft_vocab_size=129280)
    assert of_class(findings("0.18.0", model, drafter), "aux-capture")
    assert not of_class(findings("0.18.0", DEEPSEEK_V3, drafter), "aux-capture")


def test_float16_elsewhere() -> None:
    found = findings("0.18.0", QWEN3_4B, QWEN3_SPECFORGE, args="--dtype float16")
    assert not of_class(found, "aux-capture")
