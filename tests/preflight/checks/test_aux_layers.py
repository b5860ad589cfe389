from __future__ import annotations

import pytest

from preflight.examining import findings, matching, of_class
from preflight.published import (
    DEEPSEEK_V3,
    GPT_OSS_120B,
    GPT_OSS_NVIDIA,
    GPT_OSS_SHORT,
    GPT_OSS_V3,
    KIMI_K25,
    KIMI_MHA,
    KIMI_MLA,
    LLAMA31_8B,
    LLAMA31_YUHUILI,
    LLAMA33_70B,
    LLAMA33_MODELOPT,
    QWEN3_4B,
    QWEN3_SPECFORGE,
    SPECULATORS,
    Config,
    tensors,
    with_settings,
)
from vllm_eagle3_patches.preflight import Finding, Severity

IDS = "eagle_aux_hidden_state_layer_ids"


def qwen3(ids: list[int] | None, layers: int = 36) -> tuple[Config, Config]:
    return with_settings(QWEN3_4B, num_hidden_layers=layers), with_settings(
        QWEN3_SPECFORGE, **{IDS: ids}
    )


def aux(version: str, model: Config, drafter: Config, args: str = "") -> list[Finding]:
    return of_class(findings(version, model, drafter, args=args), "aux-layers")


@pytest.mark.parametrize("version", ["0.11.1", "0.18.0", "0.32.0"])
@pytest.mark.parametrize(
    ("ids", "severity"),
    [
        ([2, 18, 33], None),
        ([2, 18, 37], Severity.ERROR),
        ([-1, 18, 33], Severity.ERROR),
        ([2, 18, 18], Severity.ERROR),
        ([18, 2, 33], Severity.WARNING),  # the order, not the layers
    ],
)
def test_ids_of_the_config(version: str, ids: list[int], severity: Severity | None) -> None:
    found = aux(version, *qwen3(ids))
    assert [f.severity for f in found] == ([severity] if severity else [])


@pytest.mark.parametrize("version", ["0.10.2", "0.15.0", "0.24.0", "0.32.0"])
@pytest.mark.parametrize(
    ("layers", "collides"), [(36, False), (7, False), (6, True), (4, True), (1, True)]
)
def test_default_ids_of_few_layers(version: str, layers: int, collides: bool) -> None:
    """(2, n//2, n-3): (2, 3, 3) for six layers, (2, 2, 1) for four, (2, 0, -2) for one."""
    found = [f for f in aux(version, *qwen3(None, layers)) if f.severity is Severity.ERROR]
    assert bool(found) is collides
    if layers == 6:
        assert "(2, 3, 3)" in found[0].detail and "stand twice" in found[0].detail


@pytest.mark.parametrize(
    ("version", "crashes"), [("0.11.1", True), ("0.17.1", True), ("0.18.0", False)]
)
def test_layer_0_of_qwen(version: str, crashes: bool) -> None:
    found = matching(findings(version, *qwen3([0, 18, 33])), "aux-layers", "residual")
    assert [f.severity for f in found] == ([Severity.ERROR] if crashes else [])


@pytest.mark.parametrize("version", ["0.18.0", "0.32.0"])
@pytest.mark.parametrize("first", [0, 2])
def test_layer_0_of_deepseek(version: str, first: int) -> None:
    drafter = with_settings(KIMI_MLA, **{IDS: [first, 30, 58]})
    found = matching(findings(version, KIMI_K25, drafter), "aux-layers", "residual")
    assert [f.severity for f in found] == ([] if first else [Severity.ERROR])
    if found:
        assert "deepseek_v2.py:" in found[0].detail


@pytest.mark.parametrize(
    ("version", "model", "drafter", "error"),
    [
        ("0.17.1", GPT_OSS_120B, GPT_OSS_V3, True),
        ("0.18.0", GPT_OSS_120B, GPT_OSS_V3, False),
        ("0.18.0", KIMI_K25, with_settings(KIMI_MLA, **{IDS: [2, 30, 61]}), True),
        ("0.32.0", KIMI_K25, with_settings(KIMI_MLA, **{IDS: [2, 30, 61]}), False),
        ("0.32.0", KIMI_K25, with_settings(KIMI_MLA, **{IDS: [2, 30, 62]}), True),
    ],
)
def test_output_of_the_last_layer(
    version: str, model: Config, drafter: Config, error: bool
) -> None:
    """vLLM PR 46788: DeepSeek captures up to the entry of the last layer."""
    found = [f for f in aux(version, model, drafter) if f.severity is Severity.ERROR]
    assert bool(found) is error


@pytest.mark.parametrize("version", ["0.15.0", "0.18.0", "0.21.0"])
def test_nested_ids_are_ignored(version: str) -> None:
    nested = with_settings(QWEN3_SPECFORGE, eagle_config={IDS: [3, 17, 30]})
    (found,) = aux(version, QWEN3_4B, nested)
    assert found.severity is Severity.WARNING
    assert "`eagle_config.eagle_aux_hidden_state_layer_ids`" in found.detail
    assert "takes (2, 18, 33)" in found.detail
    assert f'"{IDS}": [3, 17, 30] at the top level' in found.fix
    both = with_settings(nested, **{IDS: [3, 17, 30]})
    assert not aux(version, QWEN3_4B, both)


def test_nested_ids_that_are_the_default_do_no_harm() -> None:
    """lightseekorg/kimi-k2.5-eagle3 on 0.15-0.21: (2, 30, 58) either way."""
    for version in ("0.15.0", "0.18.0", "0.21.0"):
        assert not aux(version, KIMI_K25, KIMI_MHA)


@pytest.mark.parametrize(
    ("version", "runner", "ignored"),
    [
        ("0.22.1", "0", False),
        ("0.22.1", "1", True),
        ("0.32.0", "0", False),
        ("0.32.0", "1", True),
        ("0.32.0", "", True),
    ],
)
def test_runners_read_different_keys(
    version: str, runner: str, ignored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_USE_V2_MODEL_RUNNER", runner)
    nested = with_settings(QWEN3_SPECFORGE, eagle_config={IDS: [3, 17, 30]})
    found = aux(version, QWEN3_4B, nested)
    assert bool(found) is ignored
    if runner == "":
        assert "the V2 runner" in found[0].detail and "the V1 runner would" in found[0].detail


@pytest.mark.parametrize("version", ["0.10.2", "0.11.0", "0.11.1"])
def test_top_level_ids_of_the_oldest_versions(version: str) -> None:
    found = aux(version, *qwen3([3, 17, 30]))
    assert bool(found) is (version != "0.11.1")
    if found:
        assert "0.11.1 was the first" in found[0].fix


def test_runner_specific_key_of_v2() -> None:
    """V2 reads `eagle_config.layer_ids` (0.27.1), V1 does not."""
    drafter = with_settings(QWEN3_SPECFORGE, eagle_config={"layer_ids": [3, 17, 30]})
    (found,) = aux("0.32.0", QWEN3_4B, drafter)
    assert "the V1 runner" in found.detail


@pytest.mark.parametrize(
    ("model", "drafter", "warned"),
    [
        (LLAMA33_70B, LLAMA33_MODELOPT, True),
        (LLAMA31_8B, LLAMA31_YUHUILI, False),
        (LLAMA31_8B, SPECULATORS, False),
        (GPT_OSS_120B, GPT_OSS_SHORT, False),
    ],
)
def test_no_ids(model: Config, drafter: Config, warned: bool) -> None:
    found = matching(findings("0.18.0", model, drafter), "aux-layers", "names no aux layers")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])
    if warned:
        assert "(2, 40, 77)" in found[0].detail


@pytest.mark.parametrize("version", ["0.22.1", "0.32.0"])
@pytest.mark.parametrize(("ids", "warned"), [([1, 17, 32], True), ([2, 18, 33], False)])
def test_numbering_of_model_optimizer(version: str, ids: list[int], warned: bool) -> None:
    drafter = with_settings(GPT_OSS_NVIDIA, **{IDS: ids})
    found = matching(findings(version, GPT_OSS_120B, drafter), "aux-layers", "Model-Optimizer")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])
    if warned:
        assert "(2, 18, 33), its default," in found[0].detail


def test_ignored_ids_of_model_optimizer_may_be_the_default() -> None:
    (found,) = aux("0.18.0", GPT_OSS_120B, GPT_OSS_NVIDIA)
    assert "the same layers if the config counts outputs" in found.detail


def test_head_without_aux_states() -> None:
    model = with_settings(GPT_OSS_120B, num_hidden_layers=4)
    shapes = tensors(GPT_OSS_SHORT, GPT_OSS_120B)
    assert not of_class(findings("0.18.0", model, GPT_OSS_SHORT, shapes), "aux-layers")


def test_closed_gate_leaves_only_what_no_patch_changes() -> None:
    """Unpatched 0.17.1 captures nothing of DeepSeek; the gate says that, not this check."""
    ids = [0, 30, 61]
    drafter = with_settings(KIMI_MHA, vocab_size=129280, **{IDS: ids})
    assert not aux("0.17.1", DEEPSEEK_V3, drafter)
    assert aux("0.17.1", DEEPSEEK_V3, with_settings(drafter, **{IDS: [2, 30, 62]}))
