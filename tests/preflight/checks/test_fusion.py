from __future__ import annotations

import pytest

from preflight.examining import errors, findings, of_class
from preflight.published import (
    GPT_OSS_120B,
    GPT_OSS_NVIDIA,
    KIMI_K25,
    KIMI_MHA,
    LLAMA31_8B,
    LLAMA31_YUHUILI,
    LLAMA33_70B,
    LLAMA33_YUHUILI,
    QWEN3_4B,
    QWEN3_SPECFORGE,
    tensors,
    with_settings,
)
from vllm_eagle3_patches.preflight import Severity

IDS = "eagle_aux_hidden_state_layer_ids"


@pytest.mark.parametrize("version", ["0.11.1", "0.18.0", "0.32.0"])
@pytest.mark.parametrize("columns", [3, 4])
def test_width_of_fc(version: str, columns: int) -> None:
    shapes = tensors(QWEN3_SPECFORGE, QWEN3_4B, states=columns)
    found = of_class(findings(version, QWEN3_4B, QWEN3_SPECFORGE, shapes), "aux-shape")
    assert [f.severity for f in found] == ([] if columns == 3 else [Severity.ERROR])
    if found:
        assert "10240 columns" in found[0].detail and "7680" in found[0].detail


def test_drafter_of_another_target() -> None:
    """An EAGLE-3 head for Llama-3.1-8B under Llama-3.3-70B."""
    shapes = tensors(LLAMA31_YUHUILI, LLAMA31_8B)
    assert not of_class(findings("0.18.0", LLAMA31_8B, LLAMA31_YUHUILI, shapes), "aux-shape")
    found = of_class(findings("0.18.0", LLAMA33_70B, LLAMA31_YUHUILI, shapes), "aux-shape")
    assert found and found[0].severity is Severity.ERROR
    assert "8192" in found[0].detail


@pytest.mark.parametrize("version", ["0.11.1", "0.32.0"])
@pytest.mark.parametrize("named", [True, False])
def test_target_hidden_size(version: str, named: bool) -> None:
    shapes = tensors(LLAMA33_YUHUILI, LLAMA33_70B, embedding=True)
    drafter = LLAMA33_YUHUILI if named else with_settings(LLAMA33_YUHUILI, target_hidden_size=None)
    found = of_class(findings(version, LLAMA33_70B, drafter, shapes), "aux-shape")
    assert [f.severity for f in found] == ([] if named else [Severity.ERROR])


@pytest.mark.parametrize("version", ["0.22.1", "0.32.0"])
def test_four_states_counted_from_the_nested_ids(version: str) -> None:
    ids = [2, 12, 24, 33]
    nested = with_settings(QWEN3_SPECFORGE, eagle_config={IDS: ids}, **{IDS: ids})
    shapes = tensors(nested, QWEN3_4B, states=4)
    assert not errors(findings(version, QWEN3_4B, nested, shapes))
    # The Llama class counts the nested ids only: with the top-level key alone it takes three.
    flat = with_settings(QWEN3_SPECFORGE, **{IDS: ids})
    assert of_class(findings(version, QWEN3_4B, flat, shapes), "aux-shape")


def test_four_states_are_too_many_for_older_classes() -> None:
    ids = [2, 12, 24, 33]
    nested = with_settings(QWEN3_SPECFORGE, eagle_config={IDS: ids}, **{IDS: ids})
    (found,) = errors(findings("0.15.0", QWEN3_4B, nested, tensors(nested, QWEN3_4B, states=4)))
    assert found.cls == "aux-shape"


@pytest.mark.parametrize(("ids", "count"), [([2, 18, 33], 0), ([2, 33], 1)])
def test_fewer_ids_than_fc_takes(ids: list[int], count: int) -> None:
    drafter = with_settings(QWEN3_SPECFORGE, **{IDS: ids})
    found = of_class(findings("0.18.0", QWEN3_4B, drafter), "aux-shape")
    assert [f.severity for f in found] == [Severity.ERROR] * count


def test_unknown_target_says_nothing() -> None:
    bare = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}
    shapes = tensors(GPT_OSS_NVIDIA, GPT_OSS_120B)
    assert not errors(findings("0.18.0", bare, GPT_OSS_NVIDIA, shapes))


@pytest.mark.parametrize("rows", [7168, 4096])
def test_rows_of_fc(rows: int) -> None:
    shapes = {**tensors(KIMI_MHA, KIMI_K25), "fc.weight": (rows, 3 * 7168)}
    found = of_class(findings("0.18.0", KIMI_K25, KIMI_MHA, shapes), "aux-shape")
    assert [f.severity for f in found] == ([] if rows == 7168 else [Severity.ERROR])
