import pytest
from real import (
    CLOSED,
    DEEPSEEK,
    DEEPSEEK_FILE,
    KIMI,
    KIMI_FILE,
    NATIVE,
    WITH_KIMI,
    finding,
    patched,
    sources,
    swap,
    target,
    with_texts,
)

from gates.places import line
from vllm_eagle3_patches.gates import interface
from vllm_eagle3_patches.gates.base import State

NAME = interface.NAME
GETTER = "    def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:\n"
DELEGATED = f"{GETTER}        return self.model.get_eagle3_aux_hidden_state_layers()\n"


@pytest.mark.parametrize("version", CLOSED)
def test_closed_for_deepseek_at_its_class(version: str) -> None:
    found = finding(sources(version), DEEPSEEK, NAME)
    assert (found.state, found.file) == (State.CLOSED, DEEPSEEK_FILE)
    assert line(version, found) == "class DeepseekV3ForCausalLM(DeepseekV2ForCausalLM):"
    assert found.detail == "DeepseekV3ForCausalLM does not inherit SupportsEagle3"


@pytest.mark.parametrize("version", WITH_KIMI)
def test_closed_for_kimi_at_the_wrapper(version: str) -> None:
    found = finding(sources(version), KIMI, NAME)
    assert (found.state, found.file) == (State.CLOSED, KIMI_FILE)
    assert line(version, found).startswith(f"class {KIMI}(")


@pytest.mark.parametrize("version", NATIVE)
@pytest.mark.parametrize("architecture", [DEEPSEEK, KIMI])
def test_native(version: str, architecture: str) -> None:
    found = finding(sources(version), architecture, NAME)
    assert found.state is State.NATIVE
    assert line(version, found).startswith(f"class {architecture}(")


@pytest.mark.parametrize("version", WITH_KIMI)
def test_kimi_needs_the_wrapper_and_its_language_model(version: str) -> None:
    both = patched(version, "interface", "interface-wrapper")
    assert finding(with_texts(version, both), KIMI, NAME).state is State.NATIVE
    wrapper = patched(version, "interface-wrapper")
    bare = version.startswith("0.15.")
    state = State.NATIVE if bare else State.CLOSED
    assert finding(with_texts(version, wrapper), KIMI, NAME).state is state
    causal = patched(version, "interface")
    assert finding(with_texts(version, causal), KIMI, NAME).state is State.CLOSED


def test_not_native_with_the_base_but_not_the_methods() -> None:
    source = swap(patched("0.17.1", NAME)[DEEPSEEK_FILE], DELEGATED, "")
    found = finding(with_texts("0.17.1", {DEEPSEEK_FILE: source}), DEEPSEEK, NAME)
    assert not found.state.passes
    assert "has no get_eagle3_aux_hidden_state_layers" in found.detail


def test_not_native_with_the_methods_but_not_the_base() -> None:
    source = swap(
        patched("0.17.1", NAME)[DEEPSEEK_FILE],
        "    SupportsEagle,\n    SupportsEagle3,\n):",
        "    SupportsEagle,\n):",
    )
    found = finding(with_texts("0.17.1", {DEEPSEEK_FILE: source}), DEEPSEEK, NAME)
    assert not found.state.passes
    assert "does not inherit SupportsEagle3" in found.detail


@pytest.mark.parametrize("version", CLOSED)
def test_the_edit_for_deepseek_is_on_the_class_that_owns_forward(version: str) -> None:
    (edit,) = interface.edits(sources(version), target(version, DEEPSEEK))
    assert (edit.scopes, edit.arguments["inner"]) == (("DeepseekV2ForCausalLM",), "model")


@pytest.mark.parametrize("version", WITH_KIMI)
def test_the_edits_for_kimi_are_on_both_classes(version: str) -> None:
    causal, wrapper = interface.edits(sources(version), target(version, KIMI))
    assert (causal.path, causal.scopes) == (DEEPSEEK_FILE, ("DeepseekV2ForCausalLM",))
    assert (wrapper.path, wrapper.scopes) == (KIMI_FILE, (KIMI,))
    assert wrapper.arguments["inner"] == "language_model"
