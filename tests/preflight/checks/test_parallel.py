from __future__ import annotations

import pytest

from preflight.examining import findings, matching, of_class
from preflight.published import (
    KIMI_K25,
    KIMI_MHA,
    KIMI_MLA,
    LLAMA31_8B,
    LLAMA31_YUHUILI,
    QWEN3_4B,
    QWEN3_SPECFORGE,
    Config,
    with_settings,
)
from vllm_eagle3_patches.preflight import Severity

IDS = "eagle_aux_hidden_state_layer_ids"
SPECULATIVE = "--speculative-config.method eagle3 --speculative-config.num_speculative_tokens 3 "


@pytest.mark.parametrize(
    ("version", "model", "drafter", "runner", "severity"),
    [
        ("0.11.1", LLAMA31_8B, LLAMA31_YUHUILI, "", Severity.ERROR),
        ("0.17.1", KIMI_K25, KIMI_MHA, "", Severity.ERROR),
        ("0.18.0", KIMI_K25, KIMI_MLA, "1", Severity.ERROR),
        ("0.24.0", LLAMA31_8B, LLAMA31_YUHUILI, "", Severity.ERROR),
        ("0.32.0", LLAMA31_8B, LLAMA31_YUHUILI, "1", None),  # relayed
        ("0.32.0", LLAMA31_8B, LLAMA31_YUHUILI, "", Severity.WARNING),
        ("0.32.0", LLAMA31_8B, LLAMA31_YUHUILI, "0", Severity.ERROR),
        ("0.32.0", KIMI_K25, KIMI_MLA, "1", Severity.ERROR),  # DeepSeek does not relay
    ],
)
def test_pipeline(
    version: str,
    model: Config,
    drafter: Config,
    runner: str,
    severity: Severity | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    for size in ("-pp 2", "--pipeline_parallel_size=2"):
        found = of_class(findings(version, model, drafter, args=size), "pipeline-parallel")
        assert [f.severity for f in found] == ([severity] if severity else [])
    assert not of_class(findings(version, model, drafter, args="-pp 1"), "pipeline-parallel")


@pytest.mark.parametrize(("ids", "error"), [([31, 45, 58], False), ([30, 45, 58], True)])
def test_all_layers_in_the_last_stage(ids: list[int], error: bool) -> None:
    """61 layers over two stages: the last has those from 31 on."""
    drafter = with_settings(KIMI_MLA, **{IDS: ids})
    found = of_class(findings("0.18.0", KIMI_K25, drafter, args="-pp 2"), "pipeline-parallel")
    assert [f.severity for f in found] == ([Severity.ERROR] if error else [])


@pytest.mark.parametrize(
    ("ranks", "severity"), [(8, None), (1, Severity.WARNING), (4, Severity.ERROR)]
)
def test_draft_tensor_parallel_size(ranks: int, severity: Severity | None) -> None:
    args = f"-tp 8 {SPECULATIVE}--speculative-config.draft_tensor_parallel_size {ranks}"
    found = of_class(findings("0.18.0", KIMI_K25, KIMI_MHA, args=args), "draft-tensor-parallel")
    assert [f.severity for f in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("setting", "value", "ranks", "word"),
    [
        ("num_attention_heads", 28, 8, "28 attention heads"),
        ("num_key_value_heads", 6, 4, "6 key-value heads"),
        ("intermediate_size", 9730, 4, "9730"),
    ],
)
def test_ranks_do_not_divide(setting: str, value: int, ranks: int, word: str) -> None:
    args = f"-tp {ranks}"
    twin = findings("0.18.0", QWEN3_4B, QWEN3_SPECFORGE, args=args)
    assert not of_class(twin, "draft-tensor-parallel")
    drafter = with_settings(QWEN3_SPECFORGE, **{setting: value})
    found = matching(
        findings("0.18.0", QWEN3_4B, drafter, args=args), "draft-tensor-parallel", word
    )
    assert [f.severity for f in found] == [Severity.ERROR]


def test_more_ranks_than_key_value_heads() -> None:
    found = findings("0.18.0", QWEN3_4B, QWEN3_SPECFORGE, args="-tp 16")
    assert not of_class(found, "draft-tensor-parallel")
