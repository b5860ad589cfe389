import pytest
from real import (
    CLOSED,
    DEEPSEEK,
    KIMI,
    LOADER,
    NATIVE,
    WITH_KIMI,
    finding,
    patched,
    sources,
    swap,
    target,
    text,
    with_texts,
)

from gates.places import line
from vllm_eagle3_patches.gates import image_token
from vllm_eagle3_patches.gates.base import Finding, State

NAME = image_token.NAME


def after(old: str, new: str, version: str = "0.17.1") -> Finding:
    source = swap(patched(version, NAME)[LOADER], old, new)
    return finding(with_texts(version, {LOADER: source}), KIMI, NAME)


@pytest.mark.parametrize("version", [*CLOSED, *NATIVE])
def test_not_applicable_for_text_only_targets(version: str) -> None:
    found = finding(sources(version), DEEPSEEK, NAME)
    assert (found.state, found.file, found.line) == (State.NOT_APPLICABLE, None, None)
    assert image_token.edits(sources(version), target(version, DEEPSEEK)) == []


@pytest.mark.parametrize("version", WITH_KIMI)
def test_closed_at_the_chain(version: str) -> None:
    found = finding(sources(version), KIMI, NAME)
    assert (found.state, found.file) == (State.CLOSED, LOADER)
    assert line(version, found) == "if self.get_model_name(target_model) in ["


@pytest.mark.parametrize("version", NATIVE)
def test_native_at_the_branch(version: str) -> None:
    found = finding(sources(version), KIMI, NAME)
    assert found.state is State.NATIVE
    assert line(version, found).startswith("self.model.config.image_token_index = ")


@pytest.mark.parametrize("version", WITH_KIMI)
def test_native_after_the_edit(version: str) -> None:
    where = with_texts(version, patched(version, NAME))
    assert finding(where, KIMI, NAME).state is State.NATIVE


def test_refused_where_the_branch_reads_something_else() -> None:
    found = after("config.media_placeholder_token_id", "config.image_token_id")
    assert found.state is State.REFUSED
    assert "does not read target_model.config.media_placeholder_token_id" in found.detail


def test_refused_without_the_chain() -> None:
    source = text("0.17.1", LOADER).replace("get_model_name", "name_of")
    found = finding(with_texts("0.17.1", {LOADER: source}), KIMI, NAME)
    assert (found.state, found.file) == (State.REFUSED, LOADER)


def test_closed_for_a_model_whose_config_may_lack_the_attribute() -> None:
    found = finding(sources("0.17.1"), "KimiVLForConditionalGeneration", NAME)
    assert (found.state, found.file) == (State.CLOSED, LOADER)
    assert "config may lack image_token_index" in found.detail


def test_native_for_a_model_that_upstream_has_a_branch_for() -> None:
    found = finding(sources("0.17.1"), "Qwen2_5_VLForConditionalGeneration", NAME)
    assert found.state is State.NATIVE
