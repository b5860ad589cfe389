"""Wrappers with the config.json of published models, as far as its keys matter here."""

import json
from pathlib import Path
from typing import Any

import pytest
import wheels
from real import sources

from vllm_eagle3_patches import installation, plan, target
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import State
from vllm_eagle3_patches.operations import apply, revert
from vllm_eagle3_patches.receipt import RECEIPT, load
from vllm_eagle3_patches.target import Request, Target, find

LLAVA = {  # llava-hf/llava-1.5-7b-hf
    "architectures": ["LlavaForConditionalGeneration"],
    "model_type": "llava",
    "image_token_index": 32000,
    "text_config": {"model_type": "llama", "vocab_size": 32064},
    "vision_config": {"model_type": "clip_vision_model"},
}
INTERNVL = {  # OpenGVLab/InternVL3-8B
    "architectures": ["InternVLChatModel"],
    "model_type": "internvl_chat",
    "llm_config": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "vision_config": {"architectures": ["InternVisionModel"]},
}
KIMI_VL = {  # moonshotai/Kimi-VL-A3B-Instruct
    "architectures": ["KimiVLForConditionalGeneration"],
    "model_type": "kimi_vl",
    "media_placeholder_token_id": 163605,
    "text_config": {"model_type": "deepseek_v3", "topk_method": "noaux_tc"},
}
GEMMA3 = {  # google/gemma-3-27b-it
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {"model_type": "gemma3_text"},
}
MISTRAL3 = {  # mistralai/Mistral-Small-3.1-24B-Instruct-2503
    "architectures": ["Mistral3ForConditionalGeneration"],
    "model_type": "mistral3",
    "text_config": {"model_type": "mistral"},
}
QWEN2_VL = {"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl"}
DEEPSEEK_VL2 = {  # deepseek-ai/deepseek-vl2-tiny
    "architectures": ["DeepseekVLV2ForCausalLM"],
    "model_type": "deepseek_vl_v2",
    "language_config": {
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "topk_method": "greedy",
        "use_mla": False,
    },
}
PALIGEMMA2 = {  # google/paligemma2-3b-pt-224
    "architectures": ["PaliGemmaForConditionalGeneration"],
    "model_type": "paligemma",
    "text_config": {"model_type": "gemma2"},
}
GLM_45V = {  # zai-org/GLM-4.5V
    "architectures": ["Glm4vMoeForConditionalGeneration"],
    "model_type": "glm4v_moe",
    "text_config": {"model_type": "glm4v_moe_text"},
}
OVIS25 = {  # AIDC-AI/Ovis2.5-9B
    "architectures": ["Ovis2_5"],
    "model_type": "ovis2_5",
    "llm_config": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"},
}
BLIP2 = {  # Salesforce/blip2-opt-2.7b
    "architectures": ["Blip2ForConditionalGeneration"],
    "model_type": "blip-2",
    "text_config": {"architectures": ["OPTForCausalLM"], "model_type": "opt"},
}
ULTRAVOX = {  # fixie-ai/ultravox-v0_5-llama-3_2-1b: the rest is in another repository
    "architectures": ["UltravoxModel"],
    "model_type": "ultravox",
    "text_model_id": "meta-llama/Llama-3.2-1B-Instruct",
}


def asked(folder: Path, config: dict[str, Any]) -> Request:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return target.request(str(folder))


def with_architectures(config: dict[str, Any], *names: str) -> dict[str, Any]:
    return {**config, "text_config": {**config["text_config"], "architectures": [*names]}}


def classes(found: Target) -> tuple[str | None, str | None, str | None]:
    (structure,) = found.structures
    sites = (structure.top, structure.causal, structure.decoder)
    top, causal, decoder = (site.name if site else None for site in sites)
    return top, causal, decoder


# Config -> model_type of the text config, architecture chosen by it, classes.
MODELS: dict[str, tuple[dict[str, Any], str, str | None, tuple[str, str, str]]] = {
    "llava": (LLAVA, "llama", "LlamaForCausalLM",
              ("LlavaForConditionalGeneration", "LlamaForCausalLM", "LlamaModel")),
    "internvl": (INTERNVL, "qwen2", "Qwen2ForCausalLM",
                 ("InternVLChatModel", "Qwen2ForCausalLM", "Qwen2Model")),
    "kimi-vl": (KIMI_VL, "deepseek_v3", None,
                ("KimiVLForConditionalGeneration", "DeepseekV2ForCausalLM", "DeepseekV2Model")),
    "gemma3": (GEMMA3, "gemma3_text", None,
               ("Gemma3ForConditionalGeneration", "Gemma3ForCausalLM", "Gemma3Model")),
    "mistral3": (MISTRAL3, "mistral", "MistralForCausalLM",
                 ("Mistral3ForConditionalGeneration", "MistralForCausalLM", "MistralModel")),
    "qwen2-vl": (QWEN2_VL, "qwen2_vl_text", None,
                 ("Qwen2VLForConditionalGeneration", "Qwen2ForCausalLM", "Qwen2Model")),
    "deepseek-vl2": (DEEPSEEK_VL2, "deepseek_v2", "DeepseekV2ForCausalLM",
                     ("DeepseekVLV2ForCausalLM", "DeepseekV2ForCausalLM", "DeepseekV2Model")),
    "paligemma2": (PALIGEMMA2, "gemma2", "Gemma2ForCausalLM",
                   ("PaliGemmaForConditionalGeneration", "Gemma2ForCausalLM", "Gemma2Model")),
    "glm-4.5v": (GLM_45V, "glm4v_moe_text", "Glm4MoeForCausalLM",
                 ("Glm4vMoeForConditionalGeneration", "Glm4MoeForCausalLM", "Glm4MoeModel")),
    "ovis2.5": (OVIS25, "qwen3", "Qwen3ForCausalLM",
                ("Ovis2_5", "Qwen3ForCausalLM", "Qwen3Model")),
    "blip2": (BLIP2, "opt", "OPTForCausalLM",
              ("Blip2ForConditionalGeneration", "OPTForCausalLM", "OPTDecoder")),
}  # fmt: skip


@pytest.mark.parametrize("version", ["0.17.1", "0.32.0"])
@pytest.mark.parametrize("model", MODELS)
def test_the_language_model_is_opened_with_its_wrapper(
    model: str, version: str, tmp_path: Path
) -> None:
    config, model_type, language, names = MODELS[model]
    where = sources(version)
    found = find(where, asked(tmp_path, config), version)
    assert (found.model_type, found.language, classes(found)) == (model_type, language, names)
    made = plan.make(where, [found], version)  # with its proofs: every gate holds afterwards
    again = find(where.with_overlay(made.after), found.request, version)
    assert classes(again) == names
    states = {f.gate: f.state for f in plan.findings(where.with_overlay(made.after), again)}
    assert states["aux-capture"] is State.NATIVE


@pytest.mark.parametrize("version", ["0.17.1", "0.32.0"])
@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("JambaForCausalLM", "cannot roll back the state of MambaMixer"),
        ("MambaForCausalLM", "a state-space model without attention"),
        ("FalconMambaForCausalLM", "a state-space model without attention"),
        ("Gemma3nForCausalLM", "Gemma3nForCausalLM holds no decoder"),
    ],
)
def test_what_is_refused_on_its_own_is_refused_behind_a_wrapper(
    language: str, said: str, version: str, tmp_path: Path
) -> None:
    """LLaVA bears no mark of recurrent state, and claims the interface for whatever it holds."""
    config = with_architectures(LLAVA, language)
    where = sources(version)
    found = find(where, asked(tmp_path, config), version)
    assert found.language == language
    alone = find(where, Request(language, None), version)
    for each in (found, alone):
        finding = next(f for f in plan.findings(where, each) if f.gate == "aux-capture")
        assert finding.state is State.REFUSED
        assert said in finding.detail


def test_the_wrappers_own_code_has_the_last_word(tmp_path: Path) -> None:
    """0.10.1.1 chooses DeepSeek-VL2's class by `topk_method` and `use_mla`, not by the config's
    own `architectures`; PaliGemma sets them on the text config in all releases."""
    where = sources("0.10.1.1")
    assert find(where, asked(tmp_path, DEEPSEEK_VL2), "").language == "DeepseekForCausalLM"
    other = {**DEEPSEEK_VL2["language_config"], "topk_method": "noaux_tc"}  # type: ignore[dict-item]
    v3 = asked(tmp_path, {**DEEPSEEK_VL2, "language_config": other})
    assert find(where, v3, "").language == "DeepseekV3ForCausalLM"
    named = with_architectures(PALIGEMMA2, "LlamaForCausalLM")
    assert find(sources("0.17.1"), asked(tmp_path, named), "").language == "Gemma2ForCausalLM"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (ULTRAVOX, "its config.json does not tell the language model"),
        ({**INTERNVL, "llm_config": {}}, "its config.json does not tell the language model"),
        (
            {**INTERNVL, "llm_config": {"architectures": ["NoSuchForCausalLM"]}},
            "NoSuchForCausalLM that its config names is not in the registry",
        ),
        (
            {**INTERNVL, "llm_config": {"architectures": ["Gemma3ForConditionalGeneration"]}},
            "its language model, Gemma3ForConditionalGeneration, is a wrapper too",
        ),
    ],
)
@pytest.mark.parametrize("version", ["0.17.1", "0.32.0"])
def test_a_language_model_that_is_not_certain_is_refused(
    version: str, config: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    where = sources(version)
    found = find(where, asked(tmp_path, config), version)
    assert reason in str(found.structures[0].unread)
    states = {f.gate: f.state for f in plan.findings(where, found)}
    assert states["aux-capture"] is State.REFUSED
    with pytest.raises(RefusedError, match="is refused"):
        plan.make(where, [found], version)


@pytest.mark.parametrize("version", ["0.17.1", "0.32.0"])
def test_the_name_alone_opens_the_wrapper_and_says_what_is_left(version: str) -> None:
    where = sources(version)
    found = find(where, target.request("InternVLChatModel"), version)
    assert found.structures[0].by_config and found.language is None
    rest = {f.gate: f.detail for f in plan.findings(where, found)}
    assert rest["aux-capture"].startswith("the config names the language model")
    made = plan.make(where, [found], version)
    assert "interface-wrapper" in [edit.name for edit in made.edits]


def test_llama4_names_its_class_in_the_call() -> None:
    found = find(sources("0.17.1"), target.request("Llama4ForConditionalGeneration"), "")
    assert classes(found)[1] == "Llama4ForCausalLM" and found.language is None


@pytest.mark.parametrize("version", ["0.17.1", "0.32.0"])
def test_language_models_of_one_wrapper_come_and_go_in_any_order(
    version: str, tmp_path: Path
) -> None:
    """Each with a receipt entry of its own, beside the name alone; back byte for byte."""
    site = wheels.install(version, tmp_path / "there")
    at = installation.find(site_packages=str(site))

    def state() -> dict[str, bytes]:
        return {p.relative_to(site).as_posix(): p.read_bytes() for p in site.rglob("*.py")}

    def targets() -> tuple[str, ...]:
        receipt = load(at.dist_info / RECEIPT)
        return receipt.targets if receipt else ()

    gemma = {"architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2"}
    one = asked(tmp_path / "qwen", INTERNVL)
    two = asked(tmp_path / "gemma", {**INTERNVL, "llm_config": gemma})
    name = target.request("InternVLChatModel")
    fresh = state()
    apply(at, one)
    with_one = state()
    apply(at, two)
    with_both = state()
    assert with_both != with_one != fresh
    assert apply(at, two).changed == ()
    assert targets() == (
        "InternVLChatModel:gemma2:Gemma2ForCausalLM",
        "InternVLChatModel:qwen2:Qwen2ForCausalLM",
    )
    apply(at, name)
    assert len(targets()) == 3 and state() == with_both
    revert(at, two)
    assert state() == with_one
    apply(at, two)
    assert state() == with_both
    revert(at, one)
    assert targets() == ("InternVLChatModel", "InternVLChatModel:gemma2:Gemma2ForCausalLM")
    revert(at, name)  # all that go by this name
    assert targets() == () and state() == fresh
