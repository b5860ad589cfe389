import json
from pathlib import Path

import pytest
from real import CLOSED, DEEPSEEK, DEEPSEEK_V32, KIMI, NATIVE, WITH_KIMI, WITH_V32, sources

from vllm_eagle3_patches import registry, target
from vllm_eagle3_patches.errors import RefusedError, UsageError
from vllm_eagle3_patches.target import Request, find, request


def config(folder: Path, content: object) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, str) else json.dumps(content)
    (folder / "config.json").write_text(data)
    return str(folder)


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face cache."""
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    return tmp_path / "hf" / "hub"


def test_the_default_is_kimi() -> None:
    assert request(None) == Request(KIMI, "kimi_k2")


@pytest.mark.parametrize(
    ("name", "model_type"),
    [
        (KIMI, "kimi_k2"),
        (DEEPSEEK, "deepseek_v3"),
        ("DeepseekV2ForCausalLM", "deepseek_v2"),
        (DEEPSEEK_V32, "deepseek_v32"),
        ("MixtralForCausalLM", None),
    ],
)
def test_an_architecture_by_name(name: str, model_type: str | None) -> None:
    assert request(name) == Request(name, model_type)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"architectures": [DEEPSEEK], "model_type": "kimi_k2"}, Request(DEEPSEEK, "kimi_k2")),
        ({"architectures": [KIMI], "model_type": "kimi_k25",
          "text_config": {"model_type": "kimi_k2"}}, Request(KIMI, "kimi_k2")),
        ({"architectures": [KIMI, DEEPSEEK], "model_type": "kimi_k25"}, Request(KIMI, "kimi_k25")),
        ({"architectures": [DEEPSEEK]}, Request(DEEPSEEK, None)),
        ({"architectures": ["InternVLChatModel"], "model_type": "internvl_chat",
          "llm_config": {"model_type": "qwen2"}}, Request("InternVLChatModel", "qwen2")),
        ({"architectures": ["DeepseekVLV2ForCausalLM"], "model_type": "deepseek_vl_v2",
          "language_config": {"model_type": "deepseek_v2"}},
         Request("DeepseekVLV2ForCausalLM", "deepseek_v2")),
        ({"architectures": ["Qwen2_5OmniModel"], "model_type": "qwen2_5_omni",
          "thinker_config": {"text_config": {"model_type": "qwen2_5_omni_text"}}},
         Request("Qwen2_5OmniModel", "qwen2_5_omni_text")),
        ({"architectures": ["Qwen2VLForConditionalGeneration"], "model_type": "qwen2_vl"},
         Request("Qwen2VLForConditionalGeneration", "qwen2_vl_text")),
        ({"architectures": [DEEPSEEK], "model_type": 3}, Request(DEEPSEEK, None)),
        ({"architectures": [DEEPSEEK], "text_config": "x", "model_type": "deepseek_v3"},
         Request(DEEPSEEK, "deepseek_v3")),
        ({"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2"}},
         Request(KIMI, "kimi_k2")),
        ({"model_type": "kimi_k2"}, Request(DEEPSEEK, "kimi_k2")),
        ({"model_type": "deepseek_v32", "architectures": []},
         Request(DEEPSEEK_V32, "deepseek_v32")),
        ({"model_type": "deepseek_v2", "architectures": None},
         Request("DeepseekV2ForCausalLM", "deepseek_v2")),
    ],
)  # fmt: skip
def test_a_folder_with_config_json(tmp_path: Path, content: object, expected: Request) -> None:
    assert request(config(tmp_path / "model", content)) == expected


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("{}", "has no `architectures`"),
        ({"model_type": "llama"}, "its model_type 'llama' does not tell"),
        ({"architectures": [3], "model_type": ["kimi_k2"]}, "has no `architectures`"),
        ({"architectures": "KimiK25ForConditionalGeneration"}, "not a list of names"),
    ],
)
def test_a_config_json_that_does_not_tell(tmp_path: Path, content: object, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as raised:
        request(config(tmp_path / "model", content))
    assert raised.value.where == str(tmp_path / "model" / "config.json")


def test_a_config_json_that_is_not_text(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b"\xff\xfe\x00{")
    with pytest.raises(UsageError, match="not JSON"):
        request(str(tmp_path))


def test_a_folder_without_config_json(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no config\.json"):
        request(str(tmp_path))


def test_a_config_json_that_is_huge_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(target.MAX_CONFIG + 1)
    with pytest.raises(UsageError, match="no model's is that large"):
        request(str(tmp_path))


def test_a_config_json_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").mkdir()
    with pytest.raises(UsageError, match="is not a file"):
        request(str(tmp_path))


def test_a_hugging_face_id_in_the_cache(hub: Path) -> None:
    folder = hub / "models--moonshotai--Kimi-K2.5"
    config(folder / "snapshots" / "abc", {"architectures": [KIMI], "model_type": "kimi_k25"})
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc\n")
    assert request("moonshotai/Kimi-K2.5") == Request(KIMI, "kimi_k25")


def test_the_cache_may_lie_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "models--a--b"
    config(folder / "snapshots" / "abc", {"architectures": [DEEPSEEK]})
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    assert request("a/b").architecture == DEEPSEEK


@pytest.mark.parametrize("name", ["moonshotai/Kimi-K2.5", "a/b"])
def test_a_hugging_face_id_that_is_not_in_the_cache(name: str) -> None:
    with pytest.raises(UsageError, match="neither a folder nor a model in the local") as raised:
        request(name)
    assert raised.value.next is not None and DEEPSEEK in raised.value.next


@pytest.mark.parametrize("name", ["./no", "/no/such", "~/no", "a/b/c", "Kimi-K2.5", "a b"])
def test_what_is_none_of_these(name: str) -> None:
    with pytest.raises(UsageError, match="--model wants a folder"):
        request(name)


def test_a_file_is_not_a_model(tmp_path: Path) -> None:
    config(tmp_path, {"architectures": [KIMI]})
    with pytest.raises(UsageError, match="--model wants a folder"):
        request(str(tmp_path / "config.json"))


@pytest.mark.parametrize("version", [*WITH_KIMI, *NATIVE])
def test_kimi_is_found_from_0_15_0(version: str) -> None:
    assert find(sources(version), request(None), version).architecture == KIMI


@pytest.mark.parametrize("version", [v for v in CLOSED if v not in WITH_KIMI])
def test_kimi_before_0_15_0_is_refused_and_deepseek_named(version: str) -> None:
    with pytest.raises(RefusedError, match=f"not in vLLM {version}: 0.15.0 brought") as raised:
        find(sources(version), request(None), version)
    assert raised.value.next is not None
    assert "--model DeepseekV3ForCausalLM" in raised.value.next


@pytest.mark.parametrize("version", [v for v in CLOSED if v not in WITH_V32])
def test_v32_before_0_11_0_is_refused(version: str) -> None:
    with pytest.raises(RefusedError, match=f"{DEEPSEEK_V32} is not in vLLM {version}"):
        find(sources(version), request(DEEPSEEK_V32), version)


@pytest.mark.parametrize("name", [None, DEEPSEEK, DEEPSEEK_V32, "NoSuchModel"])
def test_before_0_10_1_everything_is_refused_with_the_reason(name: str | None) -> None:
    with pytest.raises(RefusedError, match="has no SupportsEagle3 interface") as raised:
        find(sources("0.10.0"), request(name), "0.10.0")
    assert raised.value.next is not None and "0.10.1" in raised.value.next


@pytest.mark.parametrize(
    ("name", "near"), [("DeepseekV3ForCausaLM", DEEPSEEK), ("KimiK25ForConditionalGen", KIMI)]
)
def test_an_unknown_architecture_is_a_usage_error_with_a_guess(name: str, near: str) -> None:
    with pytest.raises(UsageError, match="knows no architecture") as raised:
        find(sources("0.17.1"), request(name), "0.17.1")
    assert raised.value.next is not None and near in raised.value.next


def test_an_unknown_architecture_without_a_near_one() -> None:
    with pytest.raises(UsageError, match="knows no architecture") as raised:
        find(sources("0.17.1"), request("Zzz"), "0.17.1")
    assert raised.value.next is None


def test_every_target_of_our_own_is_in_the_latest_registry() -> None:
    entries = registry.read(sources("0.32.0"))
    assert target.MODEL_TYPES.keys() <= entries.keys()
    assert set(target.ARCHITECTURES.values()) == target.MODEL_TYPES.keys()


@pytest.mark.parametrize(
    ("wanted", "key"),
    [
        (Request(KIMI, "kimi_k2"), KIMI),
        (Request(DEEPSEEK, "deepseek_v3"), DEEPSEEK),
        (Request("Glm4MoeForCausalLM", None), "Glm4MoeForCausalLM"),
        (Request("Glm4MoeForCausalLM", "glm4_moe"), "Glm4MoeForCausalLM:glm4_moe"),
        (Request(DEEPSEEK, "my_deepseek"), f"{DEEPSEEK}:my_deepseek"),
        (Request("InternVLChatModel", "qwen2", "Qwen2ForCausalLM"),
         "InternVLChatModel:qwen2:Qwen2ForCausalLM"),
        (Request("InternVLChatModel", None, "Qwen2ForCausalLM"),
         "InternVLChatModel::Qwen2ForCausalLM"),
    ],
)  # fmt: skip
def test_a_receipt_can_name_and_find_it_again(wanted: Request, key: str) -> None:
    assert wanted.key == key
    assert Request.of_key(key) == wanted
