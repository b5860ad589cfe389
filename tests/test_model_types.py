import json
from pathlib import Path

import pytest
from real import sources

from vllm_eagle3_patches import model_types, registry, transformers_names
from vllm_eagle3_patches.sources import Sources
from vllm_eagle3_patches.target import MODEL_TYPES, Request, find

# The generating architectures whose model_type neither transformers nor a publication tells here.
UNKNOWN = {
    "0.11.2": {
        "Fairseq2LlamaForCausalLM", "InternLM2VEForCausalLM", "KeyeForConditionalGeneration",
        "KeyeVL1_5ForConditionalGeneration", "TeleFLMForCausalLM",
    },
    "0.17.1": {
        "Fairseq2LlamaForCausalLM", "Grok1ForCausalLM", "InternLM2VEForCausalLM",
        "InternS1ProForConditionalGeneration", "KeyeForConditionalGeneration",
        "KeyeVL1_5ForConditionalGeneration", "MusicFlamingoForConditionalGeneration",
        "NemotronParseForConditionalGeneration", "OpenPanguVLForConditionalGeneration",
        "PanguProMoEV2ForCausalLM", "TeleFLMForCausalLM",
    },
}  # fmt: skip
TABLES = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS")


@pytest.mark.parametrize("version", UNKNOWN)
def test_what_is_not_known_by_name_is_counted(version: str) -> None:
    where = sources(version)
    unknown = set()
    for name, entry in registry.read(where).items():
        if entry.table in TABLES and not model_types.of_architecture(where, name):
            target = find(where, Request(name, MODEL_TYPES.get(name)), version)
            if not any(s.by_config for s in target.structures) and target.model_type is None:
                unknown.add(name)
    assert unknown == UNKNOWN[version]


def test_a_text_config_that_the_config_json_chooses_is_not_guessed() -> None:
    for name in ("LlavaForConditionalGeneration", "Mistral3ForConditionalGeneration"):
        assert model_types.of_architecture(sources("0.17.1"), name) == ()


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("MixtralForCausalLM", ("mixtral",)),
        ("Qwen2VLForConditionalGeneration", ("qwen2_vl_text",)),
        ("Llama4ForConditionalGeneration", ("llama4_text",)),
        ("Glm4vMoeForConditionalGeneration", ("Glm4vMoe_text", "glm4v_moe_text")),  # 4.57 and 5
    ],
)
def test_the_data_of_public_wheels(name: str, types: tuple[str, ...]) -> None:
    assert model_types.of_architecture(sources("0.17.1"), name) == types


def test_every_type_of_the_own_table_is_of_an_architecture_of_some_release() -> None:
    known = {name for v in ("0.11.2", "0.17.1", "0.20.2") for name in registry.read(sources(v))}
    assert model_types.REMOTE.keys() <= known


def test_those_of_vllms_own_config_classes_are_in_its_source() -> None:
    where = sources("0.17.1")
    for name, file in (
        ("ArcticForCausalLM", "transformers_utils/configs/arctic.py"),
        ("ChatGLMModel", "transformers_utils/configs/chatglm.py"),
        ("DotsOCRForCausalLM", "transformers_utils/configs/dotsocr.py"),
        ("JAISLMHeadModel", "transformers_utils/configs/jais.py"),
        ("Plamo2ForCausalLM", "model_executor/models/plamo2.py"),
        ("Plamo3ForCausalLM", "model_executor/models/plamo3.py"),
        ("Qwen3ASRForConditionalGeneration", "transformers_utils/configs/qwen3_asr.py"),
        ("Step3TextForCausalLM", "transformers_utils/configs/step3_vl.py"),
        ("Step3p5ForCausalLM", "transformers_utils/configs/step3p5.py"),
    ):
        (wanted,) = model_types.REMOTE[name]
        text = where.data(f"vllm/{file}").decode()
        assert f'model_type = "{wanted}"' in text or f'model_type: str = "{wanted}"' in text, name


def lay(folder: Path, model: str, mapping: str, configuration: str) -> Sources:
    """A transformers beside vLLM in the form of 5.x: one model, in files of its own."""
    own = folder / "transformers" / "models" / model
    own.mkdir(parents=True)
    (own / f"configuration_{model}.py").write_text(configuration)
    (own / f"modeling_{model}.py").write_text("class NewForCausalLM(PreTrainedModel): ...\n")
    auto = folder / "transformers" / "models" / "auto"
    auto.mkdir()
    (auto / "modeling_auto.py").write_text(mapping)
    return Sources(folder)


MAPPING = 'MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict([("new", "NewForCausalLM")])\n'


@pytest.mark.parametrize(
    ("configuration", "types"),
    [
        ('class NewConfig(C):\n    model_type = "new"\n', ("new",)),
        (
            'class TextConfig(C):\n    model_type = "new_text"\n'
            'class NewConfig(C):\n    model_type = "new"\n'
            '    sub_configs = {"text_config": TextConfig}\n',
            ("new_text",),
        ),
        (
            'class NewConfig(C):\n    model_type = "new"\n'
            '    sub_configs = {"text_config": AutoConfig}\n',
            (),
        ),
        (
            'class NewConfig(C):\n    model_type = "new"\n    sub_configs_defaults = {\n'
            '        "text_config": SubConfigSpec(config_class=AutoConfig, model_type="llama")}\n',
            (),
        ),
        (
            'class NewConfig(C):\n    model_type = "new"\n'
            "    def get_text_config(self):\n        return self.decoder_config\n",
            (),
        ),
    ],
)
def test_the_transformers_beside_vllm_is_read_as_text(
    tmp_path: Path, configuration: str, types: tuple[str, ...]
) -> None:
    where = lay(tmp_path, "new", MAPPING, "raise SystemExit\n" + configuration)
    assert model_types.of_architecture(where, "NewForCausalLM") == types
    assert model_types.causal_class(where, "new") == "NewForCausalLM"
    assert model_types.of_architecture(where, "NoForCausalLM") == ()


def test_no_transformers_and_no_python_say_nothing(tmp_path: Path) -> None:
    assert transformers_names.classes(tmp_path) == {}
    where = lay(tmp_path, "new", "def (", "")
    assert transformers_names.classes(where.root / "transformers") == {}


def test_the_data_says_where_it_is_from() -> None:
    facts = json.loads(model_types.DATA.read_text())
    assert facts["from"] == ["transformers-4.57.6", "transformers-5.3.0", "transformers-5.24.0"]
    assert all(facts["architectures"].values())
