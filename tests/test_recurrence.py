"""Whether real hybrids can be rolled back, release by release."""

from __future__ import annotations

import pytest
from real import finding, sources, target

from vllm_eagle3_patches import decoder
from vllm_eagle3_patches.gates.base import State
from vllm_eagle3_patches.recurrence import refusal


def why(version: str, architecture: str) -> str | None:
    (structure,) = target(version, architecture).structures
    assert structure.decoder is not None
    found = decoder.forward_with_loop(sources(version), structure.decoder)
    assert found is not None
    return refusal(sources(version), structure, found[0])


@pytest.mark.parametrize("version", ["0.11.2", "0.17.1", "0.24.0", "0.32.0"])
@pytest.mark.parametrize("name", ["Glm4MoeForCausalLM", "GPT2LMHeadModel", "CohereForCausalLM"])
def test_a_model_without_recurrent_state_has_nothing_to_roll_back(version: str, name: str) -> None:
    assert why(version, name) is None


@pytest.mark.parametrize("version", ["0.11.2", "0.17.1", "0.24.0", "0.32.0"])
@pytest.mark.parametrize(
    "name", ["MambaForCausalLM", "Mamba2ForCausalLM", "FalconMambaForCausalLM"]
)
def test_a_model_of_state_alone_is_refused(version: str, name: str) -> None:
    found = finding(sources(version), name, "aux-capture")
    assert found.state is State.REFUSED
    assert "a state-space model without attention" in found.detail


@pytest.mark.parametrize(
    ("version", "name", "mixer"),
    [
        ("0.11.2", "BambaForCausalLM", "MambaMixer2"),
        ("0.11.2", "FalconH1ForCausalLM", "MambaMixer2"),
        ("0.11.2", "NemotronHForCausalLM", "MambaMixer2"),
        ("0.11.2", "JambaForCausalLM", "MambaMixer"),
        ("0.17.1", "JambaForCausalLM", "MambaMixer"),
        ("0.32.0", "JambaForCausalLM", "MambaMixer"),
        ("0.11.2", "Lfm2ForCausalLM", "ShortConv"),
        ("0.17.1", "Lfm2ForCausalLM", "ShortConv"),
        ("0.11.2", "MiniMaxText01ForCausalLM", "MiniMaxText01LinearAttention"),
    ],
)
def test_a_hybrid_that_the_release_cannot_roll_back_is_refused(
    version: str, name: str, mixer: str
) -> None:
    reason = why(version, name)
    assert reason == f"this vLLM cannot roll back the state of {mixer} when a draft is rejected"
    found = finding(sources(version), name, "aux-capture")
    assert found.state is State.REFUSED and reason in found.detail


@pytest.mark.parametrize(
    ("version", "name"),
    [
        ("0.17.1", "BambaForCausalLM"),
        ("0.17.1", "FalconH1ForCausalLM"),
        ("0.17.1", "GraniteMoeHybridForCausalLM"),
        ("0.24.0", "FalconH1ForCausalLM"),
        ("0.32.0", "FalconH1ForCausalLM"),
        ("0.32.0", "GraniteMoeHybridForCausalLM"),
        ("0.11.2", "Qwen3NextForCausalLM"),
        ("0.32.0", "Lfm2ForCausalLM"),
    ],
)
def test_a_hybrid_whose_layers_pick_the_accepted_state_is_not_refused(
    version: str, name: str
) -> None:
    assert why(version, name) is None
