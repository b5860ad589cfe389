from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from real import sources

from preflight.folders import write_model
from preflight.published import KIMI_K25, KIMI_MHA, SPECULATORS, tensors, with_settings
from vllm_eagle3_patches import target
from vllm_eagle3_patches.errors import UsageError
from vllm_eagle3_patches.preflight import case, examine


@pytest.fixture
def drafter(tmp_path: Path) -> Path:
    return write_model(tmp_path / "drafter", KIMI_MHA, tensors(KIMI_MHA, KIMI_K25))


def command(drafter: Path | str, model: str = "org/model") -> list[str]:
    return shlex.split(
        f"vllm serve {model} -tp 8 --speculative-config.method eagle3 "
        f"--speculative-config.model {drafter} --speculative-config.num_speculative_tokens 3"
    )


def test_options(drafter: Path) -> None:
    found = case("org/model", str(drafter), "-tp 4", ())
    assert (found.model, found.drafter, found.serve.tensor_parallel) == ("org/model", drafter, 4)
    assert found.raw["hidden_size"] == 7168


def test_command(drafter: Path) -> None:
    found = case(None, None, None, command(drafter))
    assert (found.model, found.drafter, found.serve.tensor_parallel) == ("org/model", drafter, 8)


def test_drafter_beside_a_speculative_config_without_model(drafter: Path) -> None:
    found = case("org/model", str(drafter), "--speculative-config.method eagle3", ())
    assert (found.serve.speculative or {})["model"] == str(drafter)


def test_no_model_is_kimi(drafter: Path) -> None:
    found = case(None, str(drafter), None, ())
    assert found.model is None
    context = found.context(sources("0.18.0"), "0.18.0", target.request(None))
    assert (context.target.hidden_size, context.target.layers) == (7168, 61)
    assert not [f for f in examine(context) if f.severity.value == "error"]


def test_architecture_name_has_no_config(drafter: Path) -> None:
    found = case("DeepseekV3ForCausalLM", str(drafter), None, ())
    context = found.context(sources("0.18.0"), "0.18.0", target.request("DeepseekV3ForCausalLM"))
    assert context.target.hidden_size is None
    assert not [f for f in examine(context) if f.severity.value == "error"]


def test_speculators_model_names_its_target(tmp_path: Path) -> None:
    verifier = write_model(tmp_path / "verifier", KIMI_K25)
    settings = {**SPECULATORS["speculators_config"], "verifier": {"name_or_path": str(verifier)}}
    config = with_settings(SPECULATORS, speculators_config=settings)
    folder = write_model(tmp_path / "speculator", config)
    found = case(None, None, None, ["vllm", "serve", str(folder)])
    assert (found.model, found.drafter) == (str(verifier), folder)


@pytest.mark.parametrize("config", [KIMI_K25, with_settings(SPECULATORS, speculators_config={})])
def test_model_that_is_no_speculator(tmp_path: Path, config: dict[str, object]) -> None:
    folder = write_model(tmp_path / "model", config)
    with pytest.raises(UsageError):
        case(None, None, None, ["vllm", "serve", str(folder)])


def test_contradictions(drafter: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the model is named twice"):
        case("other/model", None, None, command(drafter))
    with pytest.raises(UsageError, match="the drafter is named twice"):
        case(None, str(tmp_path), None, command(drafter))
    with pytest.raises(UsageError, match="not both"):
        case(None, None, "-tp 8", command(drafter))
    with pytest.raises(UsageError, match="no drafter"):
        case("org/model", None, "-tp 8", ())
    with pytest.raises(UsageError, match="no drafter"):
        case(None, None, None, ["vllm", "serve", "Llama", "-tp", "8"])


@pytest.mark.parametrize("name", ["org/drafter", "/nowhere/drafter", "./nowhere", "a/b/c", "name"])
def test_drafter_that_is_not_there(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    with pytest.raises(UsageError) as error:
        case(None, name, None, ())
    if name == "org/drafter":
        assert "model.safetensors" in str(error.value) and "config.json" in str(error.value)
        assert "hf download org/drafter" in str(error.value)


def test_drafter_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    repository = tmp_path / "hub" / "models--org--drafter"
    snapshot = write_model(repository / "snapshots" / "abc", KIMI_MHA)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    assert case(None, "org/drafter", None, ()).drafter == snapshot


@pytest.mark.parametrize(
    "text", [None, "", "[]", "{", "version https://git-lfs.github.com/spec/v1\n"]
)
def test_config_that_is_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError):
        case(None, str(tmp_path), None, ())
