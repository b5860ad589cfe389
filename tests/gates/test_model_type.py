import pytest
from real import (
    CLOSED,
    CONFIG,
    DEEPSEEK,
    KIMI,
    NATIVE,
    finding,
    sources,
    swap,
    target,
    text,
    with_texts,
)

from gates.places import line
from vllm_eagle3_patches.gates import model_type
from vllm_eagle3_patches.gates.base import Finding, State
from vllm_eagle3_patches.target import Request, find

NAME = model_type.NAME


def of_type(version: str, wanted: str | None, architecture: str = DEEPSEEK) -> Finding:
    where = sources(version)
    return model_type.inspect(where, find(where, Request(architecture, wanted), version))


def after(old: str, new: str) -> Finding:
    """The finding on 0.17.1 with one text replaced."""
    return finding(
        with_texts("0.17.1", {CONFIG: swap(text("0.17.1", CONFIG), old, new)}), KIMI, NAME
    )


@pytest.mark.parametrize("version", CLOSED)
def test_closed_at_the_list(version: str) -> None:
    found = finding(sources(version), DEEPSEEK, NAME)
    assert found.state is State.CLOSED
    assert found.file == (
        "vllm/config/__init__.py" if version.startswith("0.10.") else "vllm/config/speculative.py"
    )
    assert "_supported = [" in line(version, found)
    assert found.detail == "'deepseek_v3' is not in the list"


@pytest.mark.parametrize("version", [v for v in NATIVE if v < "0.22"])
def test_native_where_the_list_has_it(version: str) -> None:
    found = finding(sources(version), KIMI, NAME)
    assert (found.state, found.detail) == (State.NATIVE, "'kimi_k2' matches 'kimi_k2'")
    assert "_supported = [" in line(version, found)


@pytest.mark.parametrize("version", [v for v in NATIVE if v > "0.22"])
def test_native_where_there_is_no_list_any_more(version: str) -> None:
    found = finding(sources(version), KIMI, NAME)
    assert (found.state, found.detail) == (State.NATIVE, "no list of model types any more")
    assert line(version, found) == "class SpeculativeConfig:"


def test_the_match_is_on_a_part_of_the_model_type() -> None:
    assert of_type("0.17.1", "my_llama_like").state is State.NATIVE
    assert of_type("0.18.0", "deepseek_v32").state is State.NATIVE  # by deepseek_v3
    assert of_type("0.17.1", "deepseek_v32").state is State.CLOSED
    assert of_type("0.17.1", "lama").state is State.CLOSED


def test_closed_for_any_other_model_type() -> None:
    found = of_type("0.17.1", "mixtral", "MixtralForCausalLM")
    assert (found.state, found.detail) == (State.CLOSED, "'mixtral' is not in the list")


def test_the_edit_adds_the_targets_own_type_only() -> None:
    where = sources("0.17.1")
    (edit,) = model_type.edits(where, find(where, Request("MixtralForCausalLM", "mixtral"), ""))
    assert edit.arguments == {"types": "mixtral"}
    (edit,) = model_type.edits(where, find(where, Request(KIMI, "kimi_k2"), ""))
    assert edit.arguments == {"types": ",".join(model_type.MODEL_TYPES)}


def test_refused_where_the_model_type_is_not_known() -> None:
    found = of_type("0.17.1", None, "TeleFLMForCausalLM")
    assert (found.state, found.detail) == (
        State.REFUSED,
        "which model_type TeleFLMForCausalLM has in its config.json is not known; "
        "give its folder to --model",
    )
    assert of_type("0.22.1", None, "TeleFLMForCausalLM").state is State.NATIVE


@pytest.mark.parametrize(
    ("architecture", "types"),
    [
        ("Glm4MoeForCausalLM", "glm4_moe"),
        ("BailingMoeV2ForCausalLM", "bailing_moe"),
        ("Gemma3ForConditionalGeneration", "gemma3_text"),
        ("Llama4ForCausalLM", None),  # llama4_text: llama is in the list
        ("KimiVLForConditionalGeneration", ",".join(model_type.MODEL_TYPES)),
    ],
)
def test_a_name_alone_is_enough_where_the_model_type_is_known(
    architecture: str, types: str | None
) -> None:
    where = sources("0.17.1")
    wanted = find(where, Request(architecture, None), "")
    found = model_type.inspect(where, wanted)
    assert found.state is (State.CLOSED if types else State.NATIVE)
    if types:
        (edit,) = model_type.edits(where, wanted)
        assert edit.arguments == {"types": types}


def test_a_wrapper_whose_language_model_the_config_names_has_no_type_of_its_own() -> None:
    found = of_type("0.17.1", None, "InternVLChatModel")
    assert (found.state, found.detail) == (
        State.NOT_APPLICABLE,
        "the config names the language model; give its folder to --model",
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("        aux_hidden_states_supported = [", "        supported = ["),
        (
            "        aux_hidden_states_supported = [",
            "        aux_hidden_states_supported: list = [",
        ),
        ('            "afmoe",', "            AFMOE,"),
        ("supported_model in self.target_model_config.hf_text_config.model_type", "supported()"),
    ],
)
def test_refused_in_an_unknown_form(old: str, new: str) -> None:
    found = after(old, new)
    assert (found.state, found.file) == (State.REFUSED, CONFIG)
    assert found.line is not None


def test_refused_without_the_class() -> None:
    found = after("class SpeculativeConfig:", "class Speculation:")
    assert (found.state, found.detail) == (State.REFUSED, "no class SpeculativeConfig found")


def test_open_after_the_edit_and_the_edit_is_one() -> None:
    (edit,) = model_type.edits(sources("0.17.1"), target("0.17.1", KIMI))
    assert (edit.path, edit.scopes, edit.codemod) == (CONFIG, ("SpeculativeConfig",), "model_type")
