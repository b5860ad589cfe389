import pytest
from real import (
    BARE_DECODER,
    CLOSED,
    DEEPSEEK,
    DEEPSEEK_FILE,
    DEEPSEEK_V32,
    KIMI,
    KIMI_FILE,
    NATIVE,
    WITH_KIMI,
    WITH_V32,
    find,
    swap,
    target,
    text,
    with_texts,
)

from vllm_eagle3_patches import plan
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import State
from vllm_eagle3_patches.structure import Structure

DECODER = (DEEPSEEK_FILE, "DeepseekV2Model")


def structure(version: str, architecture: str) -> Structure:
    (found,) = target(version, architecture).structures
    return found


@pytest.mark.parametrize("version", [*CLOSED, *NATIVE])
def test_a_text_model_is_its_own_causal_class(version: str) -> None:
    found = structure(version, DEEPSEEK)
    assert found.top is found.causal
    assert (found.top.path, found.top.name) == (DEEPSEEK_FILE, DEEPSEEK)
    assert (found.decoder.path, found.decoder.name) == DECODER
    assert not found.is_wrapper and not target(version, DEEPSEEK).is_wrapper


@pytest.mark.parametrize("version", WITH_V32)
def test_v32_before_0_28_shares_the_decoder(version: str) -> None:
    found = structure(version, DEEPSEEK_V32)
    assert (found.decoder.path, found.decoder.name) == DECODER


@pytest.mark.parametrize("version", [v for v in NATIVE if v > "0.28"])
def test_v32_has_a_structure_for_each_platform(version: str) -> None:
    found = target(version, DEEPSEEK_V32).structures
    assert len(found) > 1
    for each in found:
        assert each.decoder.path == each.top.path
        own = each.decoder.path != DEEPSEEK_FILE
        assert each.decoder.name == ("DeepseekV32Model" if own else "DeepseekV2Model")


@pytest.mark.parametrize("version", [v for v in [*WITH_KIMI, *NATIVE] if v not in BARE_DECODER])
def test_kimi_wraps_a_causal_class(version: str) -> None:
    found = structure(version, KIMI)
    assert (found.top.path, found.top.name) == (KIMI_FILE, KIMI)
    assert found.causal is not None
    assert (found.causal.path, found.causal.name) == (DEEPSEEK_FILE, "DeepseekV2ForCausalLM")
    assert (found.decoder.path, found.decoder.name) == DECODER
    assert found.is_wrapper


@pytest.mark.parametrize("version", BARE_DECODER)
def test_kimi_of_0_15_wraps_a_bare_decoder(version: str) -> None:
    found = structure(version, KIMI)
    assert found.causal is None
    assert (found.decoder.path, found.decoder.name) == DECODER
    assert found.is_wrapper


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("self.model = self.model_cls(", "self.model = choose(config)(", "holds no decoder"),
        ("model_cls = DeepseekV2Model", "model_cls = NoSuchModel", "holds no decoder"),
        ("self.model = self.model_cls(", "self.decoder = self.model_cls(",
         "no decoder that is called in forward; decoder run layers"),
    ],
)  # fmt: skip
def test_a_decoder_that_cannot_be_named_is_not_read(old: str, new: str, reason: str) -> None:
    source = text("0.17.1", DEEPSEEK_FILE).replace(old, new)
    where = with_texts("0.17.1", {DEEPSEEK_FILE: source})
    (found,) = find(where, DEEPSEEK).structures
    assert found.decoder is None and not found.by_config
    assert reason in (found.unread or "")
    states = {f.gate: f.state for f in plan.findings(where, find(where, DEEPSEEK))}
    assert states["weight-sharing"] is states["aux-capture"] is State.REFUSED
    with pytest.raises(RefusedError, match="is refused"):
        plan.make(where, [find(where, DEEPSEEK)], "")


@pytest.mark.parametrize(
    "new", ["architectures=config.architectures,", ""], ids=["an expression", "not at all"]
)
def test_a_language_model_that_the_config_names_is_left_to_it(new: str) -> None:
    found = with_language_model(new)
    assert found.by_config and found.decoder is found.causal is found.unread is None
    assert found.language == "language_model"


@pytest.mark.parametrize("new", ['["NoSuchModel"]', '["A", "B"]'])
def test_a_language_model_that_the_registry_lacks_is_not_read(new: str) -> None:
    found = with_language_model(f"architectures={new},")
    assert found.decoder is None and not found.by_config
    assert (found.unread or "").startswith("the registry has no ")


def with_language_model(new: str) -> Structure:
    """Kimi-K2.5 of 0.17.1 whose language model is named in another way."""
    source = swap(text("0.17.1", KIMI_FILE), 'architectures=["DeepseekV2ForCausalLM"],', new)
    (found,) = find(with_texts("0.17.1", {KIMI_FILE: source}), KIMI).structures
    return found
