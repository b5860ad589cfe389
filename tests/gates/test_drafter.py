import pytest
from real import CLOSED, DEEPSEEK, LOADER, NATIVE, finding, sources, target, text, with_texts

from gates.places import line
from vllm_eagle3_patches import registry
from vllm_eagle3_patches.gates import drafter
from vllm_eagle3_patches.gates.base import State


@pytest.mark.parametrize("version", [*CLOSED, *NATIVE])
def test_native_at_the_registry_entry(version: str) -> None:
    found = finding(sources(version), DEEPSEEK, drafter.NAME)
    assert (found.state, found.file) == (State.NATIVE, registry.PATH)
    assert "Eagle3" in line(version, found)
    assert "Eagle3LlamaForCausalLM" in found.detail


@pytest.mark.parametrize("version", CLOSED)
def test_before_0_18_0_the_proposer_takes_the_llama_drafter_only(version: str) -> None:
    assert (
        finding(sources(version), DEEPSEEK, drafter.NAME).detail == "takes Eagle3LlamaForCausalLM"
    )


def test_from_0_18_0_it_takes_the_mla_drafter_too() -> None:
    detail = finding(sources("0.18.0"), DEEPSEEK, drafter.NAME).detail
    assert detail == "takes Eagle3LlamaForCausalLM, Eagle3DeepseekV2ForCausalLM"


def test_it_is_never_edited() -> None:
    assert drafter.edits(sources("0.17.1"), target("0.17.1", DEEPSEEK)) == []


def test_refused_where_the_registry_has_none() -> None:
    source = text("0.17.1", registry.PATH).replace('"Eagle3', '"Eagle9')
    found = finding(with_texts("0.17.1", {registry.PATH: source}), DEEPSEEK, drafter.NAME)
    assert found.state is State.REFUSED
    assert "no EAGLE-3 drafter" in found.detail


def test_refused_where_the_proposer_accepts_another() -> None:
    source = text("0.17.1", LOADER).replace("Eagle3LlamaForCausalLM", "Eagle3OtherForCausalLM")
    found = finding(with_texts("0.17.1", {LOADER: source}), DEEPSEEK, drafter.NAME)
    assert found.state is State.REFUSED


def test_refused_where_the_module_is_missing() -> None:
    source = text("0.17.1", registry.PATH).replace('"llama_eagle3"', '"llama_eagle4"')
    found = finding(with_texts("0.17.1", {registry.PATH: source}), DEEPSEEK, drafter.NAME)
    assert (found.state, found.detail) == (
        State.REFUSED, "the registry names llama_eagle4, which is not in the package"
    )  # fmt: skip


def test_refused_where_no_proposer_is_found() -> None:
    source = text("0.17.1", LOADER).replace("target_model: nn.Module", "model: nn.Module")
    found = finding(with_texts("0.17.1", {LOADER: source}), DEEPSEEK, drafter.NAME)
    assert found.state is State.REFUSED
    assert "no proposer with load_model(target_model)" in found.detail
