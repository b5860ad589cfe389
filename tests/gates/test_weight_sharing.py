import pytest
from real import (
    BARE_DECODER,
    CLOSED,
    DEEPSEEK,
    DEEPSEEK_FILE,
    KIMI,
    KIMI_FILE,
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
from vllm_eagle3_patches.gates import weight_sharing
from vllm_eagle3_patches.gates.base import State

NAME = weight_sharing.NAME


@pytest.mark.parametrize("version", [*CLOSED, *NATIVE])
def test_native_for_deepseek_at_its_class(version: str) -> None:
    found = finding(sources(version), DEEPSEEK, NAME)
    assert found.state is State.NATIVE
    assert line(version, found).startswith("class DeepseekV3ForCausalLM(")
    assert weight_sharing.edits(sources(version), target(version, DEEPSEEK)) == []


@pytest.mark.parametrize("version", [v for v in [*WITH_KIMI, *NATIVE] if v not in BARE_DECODER])
def test_native_for_kimi_whose_language_model_is_whole(version: str) -> None:
    found = finding(sources(version), KIMI, NAME)
    assert found.state is State.NATIVE
    assert line(version, found).startswith("class DeepseekV2ForCausalLM(")


@pytest.mark.parametrize("version", BARE_DECODER)
def test_closed_for_kimi_whose_language_model_is_a_bare_decoder(version: str) -> None:
    found = finding(sources(version), KIMI, NAME)
    assert (found.state, found.file) == (State.CLOSED, LOADER)
    assert line(version, found) == weight_sharing.LANGUAGE_MODEL[0]


@pytest.mark.parametrize("version", BARE_DECODER)
def test_native_after_the_edit(version: str) -> None:
    where = with_texts(version, patched(version, NAME))
    assert finding(where, KIMI, NAME).state is State.NATIVE


@pytest.mark.parametrize(
    ("path", "old", "new", "detail"),
    [
        (LOADER, weight_sharing.LANGUAGE_MODEL[0],
         "target_language_model = target_model.language_model", "a form this tool does not know"),
        (KIMI_FILE, "            self.lm_head = ParallelLMHead(", "            self.head = Head(",
         None),
    ],
)  # fmt: skip
def test_refused_in_another_form(path: str, old: str, new: str, detail: str | None) -> None:
    where = with_texts("0.15.1", {path: swap(text("0.15.1", path), old, new)})
    found = finding(where, KIMI, NAME)
    if detail is None:  # the other branch still makes one
        assert found.state is State.CLOSED
    else:
        assert found.state is State.REFUSED and detail in found.detail


def test_refused_where_the_wrapper_has_no_head() -> None:
    source = text("0.15.1", KIMI_FILE).replace("self.lm_head = ", "self.head = ")
    found = finding(with_texts("0.15.1", {KIMI_FILE: source}), KIMI, NAME)
    assert found.state is State.REFUSED
    assert "has no lm_head that can be named" in found.detail


@pytest.mark.parametrize("architecture", [DEEPSEEK, KIMI])
def test_refused_where_the_decoder_has_no_embedding(architecture: str) -> None:
    source = text("0.17.1", DEEPSEEK_FILE).replace("self.embed_tokens", "self.wte")
    source = source.replace("self.wte = VocabParallelEmbedding(", "self.wte = Table(")
    found = finding(with_texts("0.17.1", {DEEPSEEK_FILE: source}), architecture, NAME)
    assert found.state is State.REFUSED
    assert "DeepseekV2Model makes 0 VocabParallelEmbedding" in found.detail
    assert DEEPSEEK_FILE in found.detail


def test_closed_again_where_the_branch_is_only_half_there() -> None:
    source = swap(patched("0.15.1", NAME)[LOADER], ", lm_head=target_model.lm_head", "")
    found = finding(with_texts("0.15.1", {LOADER: source}), KIMI, NAME)
    assert found.state is not State.NATIVE


@pytest.mark.parametrize(("version", "names"), [
    ("0.24.0", ["cls", "embed_tokens"]),
    ("0.30.0", ["cls", "embed_tokens", "layers"]),
    ("0.32.0", ["cls", "embed_tokens", "layers"]),
])  # fmt: skip
def test_a_bare_decoder_has_layers_where_the_protocol_comes_to_it(
    version: str, names: list[str]
) -> None:
    """Its default layer ids count them: Moondream3, whose layers are `blocks`, failed there."""
    edits = weight_sharing.edits(sources(version), target(version, "Moondream3ForCausalLM"))
    (aliases,) = (edit for edit in edits if edit.codemod == "aliases")
    assert sorted(aliases.arguments) == names
