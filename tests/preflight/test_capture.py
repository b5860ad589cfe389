from __future__ import annotations

import pytest
from real import CLOSED, NATIVE, sources, target

from preflight.published import KIMI_MHA, with_settings
from vllm_eagle3_patches import plan
from vllm_eagle3_patches.preflight import aux
from vllm_eagle3_patches.preflight.capture import of_target
from vllm_eagle3_patches.preflight.drafter import load
from vllm_eagle3_patches.preflight.runner import V1, V2, runners
from vllm_eagle3_patches.preflight.weights import Weights

KIMI = "KimiK25ForConditionalGeneration"


@pytest.mark.parametrize(
    ("version", "architecture", "first", "last", "absolute"),
    [
        ("0.10.1", "LlamaForCausalLM", None, False, False),
        ("0.17.1", "Qwen3ForCausalLM", None, False, False),
        ("0.17.1", "GptOssForCausalLM", True, False, True),
        ("0.18.0", "LlamaForCausalLM", True, True, False),
        ("0.18.0", KIMI, None, False, True),
        ("0.32.0", KIMI, None, True, True),
        ("0.32.0", "Qwen3ForCausalLM", True, True, True),
        ("0.32.0", "Qwen2_5_VLForConditionalGeneration", True, True, True),
    ],
)
def test_forms(
    version: str, architecture: str, first: bool | None, last: bool, absolute: bool
) -> None:
    found = of_target(sources(version), architecture)
    assert found is not None
    assert (found.first, found.last, found.absolute) == (first, last, absolute)


@pytest.mark.parametrize("version", ["0.15.0", "0.17.1"])
def test_nothing_captured(version: str) -> None:
    assert of_target(sources(version), KIMI) is None
    assert of_target(sources(version), "NoSuchModel") is None


def test_ids_that_arrive() -> None:
    older, newer = (of_target(sources(v), "GptOssForCausalLM") for v in ("0.17.1", "0.18.0"))
    assert older is not None and newer is not None
    assert older.captured((0, 36, 18, 18, 40), 36) == (0, 18)
    assert newer.captured((0, 36, 18, 18, 40), 36) == (0, 18, 36)


@pytest.mark.parametrize("version", CLOSED + NATIVE)
@pytest.mark.parametrize("architecture", ["LlamaForCausalLM", "DeepseekV3ForCausalLM", KIMI])
def test_default_ids(version: str, architecture: str) -> None:
    assert aux.default(sources(version), architecture, 61) == (2, 30, 58)


@pytest.mark.parametrize("version", CLOSED + NATIVE)
def test_keys_the_runners_read(version: str) -> None:
    """As `VLLM_FACTS.md` has it: top level from 0.11.1; nested in V1 from 0.22.0, V2 never."""
    index = (CLOSED + NATIVE).index
    top = with_settings(KIMI_MHA, eagle_config=None, eagle_aux_hidden_state_layer_ids=[3, 9])
    for runner in (V1, V2):
        found = [
            aux.read_by(sources(version), runner, load(sources(version), None, c, Weights({})))  # type: ignore[arg-type]
            for c in (top, KIMI_MHA)
        ]
        since = "0.11.1" if runner == V1 else "0.17.0"
        assert found[0] == ((3, 9) if index(version) >= index(since) else None)
        nested = runner == V1 and index(version) >= index("0.22.1")
        assert found[1] == ((2, 30, 58) if nested else None)


@pytest.mark.parametrize(
    ("version", "architecture", "wanted"),
    [
        ("0.15.0", "Qwen3ForCausalLM", (V1,)),
        ("0.21.0", "Qwen3ForCausalLM", (V1,)),
        ("0.22.1", "Qwen3ForCausalLM", (V2, V1)),
        ("0.22.1", "LlamaForCausalLM", (V1,)),
        ("0.24.0", "LlamaForCausalLM", (V2, V1)),
        ("0.24.0", KIMI, (V1,)),
        ("0.27.1", "LlamaForCausalLM", (V2, V1)),
        ("0.32.0", KIMI, (V2, V1)),
    ],
)
def test_runners(
    version: str,
    architecture: str,
    wanted: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("VLLM_USE_V2_MODEL_RUNNER", raising=False)
    assert runners(sources(version), architecture, {}) == wanted
    has_v2 = version != "0.15.0"
    for value, runner in (("1", V2), ("0", V1)):
        asked = runners(sources(version), architecture, {"VLLM_USE_V2_MODEL_RUNNER": value})
        assert asked == ((runner,) if has_v2 else (V1,))


@pytest.mark.parametrize("version", ["0.11.1", "0.15.0", "0.17.1"])
def test_what_our_patch_captures(version: str) -> None:
    architecture = KIMI if version != "0.11.1" else "DeepseekV3ForCausalLM"
    installed = sources(version)
    made = plan.make(installed, [target(version, architecture)], version)
    found = of_target(installed.with_overlay(made.after), architecture)
    assert found is not None
    assert (found.first, found.last, found.absolute) == (True, True, True)
