"""What each release makes of a drafter's config, read from its source."""

from __future__ import annotations

from pathlib import Path

import pytest
from real import sources

from preflight.published import (
    KIMI_K25,
    KIMI_MHA,
    KIMI_MLA,
    KIMI_MLA_31,
    LLAMA31_8B,
    LLAMA31_YUHUILI,
    LLAMA33_70B,
    LLAMA33_YUHUILI,
    QWEN3_SPECFORGE,
    SPECULATORS,
    Config,
    with_settings,
)
from vllm_eagle3_patches.preflight.built import build
from vllm_eagle3_patches.preflight.drafter import Drafter, load
from vllm_eagle3_patches.preflight.facts import TargetFacts
from vllm_eagle3_patches.preflight.weights import Weights


def drafter(version: str, config: Config) -> Drafter:
    return load(sources(version), Path("/drafter"), config, Weights({}))


@pytest.mark.parametrize("version", ["0.10.1", "0.15.0", "0.32.0"])
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("LlamaForCausalLM", "Eagle3LlamaForCausalLM"),
        ("Eagle3LlamaForCausalLM", "Eagle3LlamaForCausalLM"),
        ("LlamaForCausalLMEagle3", "LlamaForCausalLMEagle3"),
        ("Qwen2ForCausalLM", "Eagle3Qwen2ForCausalLM"),
        ("EagleLlamaForCausalLM", "Eagle3EagleLlamaForCausalLM"),
    ],
)
def test_architecture(version: str, given: str, wanted: str) -> None:
    found = drafter(version, with_settings(LLAMA31_YUHUILI, architectures=[given]))
    assert (found.original, found.architecture) == (given, wanted)
    assert (found.site is not None) is (
        wanted == "Eagle3LlamaForCausalLM"
        or (wanted == "LlamaForCausalLMEagle3" and version != "0.10.1")
    )


@pytest.mark.parametrize("version", ["0.15.0", "0.18.0", "0.32.0"])
def test_mtp(version: str) -> None:
    found = drafter(version, with_settings(KIMI_MLA, model_type="deepseek_v3"))
    assert found.overridden == "DeepSeekMTPModel"
    assert found.architecture == "Eagle3DeepSeekMTPModel"
    assert found.config["n_predict"] == 0
    assert drafter(version, KIMI_MLA).architecture == "Eagle3DeepseekV2ForCausalLM"


@pytest.mark.parametrize(
    ("version", "kept", "dropped"),
    [
        ("0.10.1", {"norm_before_residual"}, {"norm_before_fc", "norm_output", "fc_norm"}),
        ("0.18.0", {"norm_before_residual"}, {"norm_before_fc", "norm_output", "fc_norm"}),
        ("0.19.1", {"norm_before_residual", "norm_before_fc"}, {"norm_output", "fc_norm"}),
        ("0.27.1", {"norm_before_fc", "norm_output", "fc_norm"}, set()),
    ],
)
def test_speculators_settings(version: str, kept: set[str], dropped: set[str]) -> None:
    settings = dict.fromkeys((*kept, *dropped), True)
    found = drafter(version, with_settings(SPECULATORS, **settings))
    assert found.speculators and found.problem is None
    assert found.architecture == "Eagle3LlamaForCausalLM"
    assert (found.config["hidden_size"], found.config["draft_vocab_size"]) == (4096, 32000)
    assert all(found.config[key] is True for key in kept)
    assert not dropped & set(found.config)


def test_the_raw_config_is_left_alone() -> None:
    for config in (SPECULATORS, KIMI_MLA):
        before = str(config)
        drafter("0.32.0", config)
        assert str(config) == before


@pytest.mark.parametrize("version", ["0.10.2", "0.11.1", "0.18.0", "0.24.0", "0.32.0"])
def test_sizes_of_the_built_modules(version: str) -> None:
    found = build(
        sources(version),
        drafter(version, QWEN3_SPECFORGE),
        TargetFacts(KIMI_K25, "KimiK25ForConditionalGeneration"),
    )
    assert (found.fc_input, found.fc_output) == (7680, 2560)
    assert (found.draft_vocab, found.vocab, found.layers) == (32000, 151936, 1)
    assert found.maps_ids is True
    assert found.uses_aux is True
    assert found.lacks("input_norm")


@pytest.mark.parametrize(
    ("version", "config", "model", "fc"),
    [
        ("0.18.0", KIMI_MLA, KIMI_K25, 21504),
        ("0.32.0", KIMI_MLA_31, KIMI_K25, 21504),
        ("0.15.0", LLAMA33_YUHUILI, LLAMA33_70B, 24576),
        ("0.32.0", LLAMA33_YUHUILI, LLAMA33_70B, 24576),
        ("0.32.0", with_settings(QWEN3_SPECFORGE, num_aux_hidden_states=5), LLAMA31_8B, 12800),
        ("0.15.0", with_settings(QWEN3_SPECFORGE, num_aux_hidden_states=5), LLAMA31_8B, 7680),
    ],
)
def test_width_of_fc(version: str, config: Config, model: Config, fc: int) -> None:
    target = TargetFacts(model, model["architectures"][0])
    assert build(sources(version), drafter(version, config), target).fc_input == fc


def test_optional_modules() -> None:
    target = TargetFacts(KIMI_K25, "KimiK25ForConditionalGeneration")
    plain = build(sources("0.32.0"), drafter("0.32.0", KIMI_MHA), target)
    assert plain.lacks("fc_norm") and not plain.lacks("fc")
    normed = build(sources("0.32.0"), drafter("0.32.0", KIMI_MLA_31), target)
    assert not normed.lacks("fc_norm")


def test_nothing_built_without_a_class() -> None:
    target = TargetFacts({}, "X")
    config = with_settings(KIMI_MHA, architectures=["Nothing"])
    found = build(sources("0.32.0"), drafter("0.32.0", config), target)
    assert (found.fc_input, found.draft_vocab, found.maps_ids) == (None, None, None)
    assert not found.lacks("fc")
