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
    target,
    text,
    with_texts,
)

from vllm_eagle3_patches.errors import RefusedError
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
    ("path", "old", "new", "reason"),
    [
        (DEEPSEEK_FILE, "self.model = self.model_cls(", "self.model = choose(config)(",
         "not certain"),
        (DEEPSEEK_FILE, "model_cls = DeepseekV2Model", "model_cls = NoSuchModel", "not certain"),
        (DEEPSEEK_FILE, "self.model = self.model_cls(", "self.decoder = self.model_cls(",
         "neither `self.model` nor `self.language_model`"),
    ],
)  # fmt: skip
def test_a_decoder_that_cannot_be_named_is_refused(
    path: str, old: str, new: str, reason: str
) -> None:
    where = with_texts("0.17.1", {path: text("0.17.1", path).replace(old, new)})
    with pytest.raises(RefusedError, match=reason) as raised:
        find(where, DEEPSEEK)
    assert str(raised.value.where).startswith(f"{path}:")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('architectures=["DeepseekV2ForCausalLM"]', "architectures=config.architectures"),
        ('architectures=["DeepseekV2ForCausalLM"]', 'architectures=["NoSuchModel"]'),
        ('architectures=["DeepseekV2ForCausalLM"]', 'architectures=["A", "B"]'),
        ('                architectures=["DeepseekV2ForCausalLM"],\n', ""),
    ],
)
def test_a_language_model_that_cannot_be_named_is_refused(old: str, new: str) -> None:
    where = with_texts("0.17.1", {KIMI_FILE: text("0.17.1", KIMI_FILE).replace(old, new)})
    with pytest.raises(RefusedError, match=r"language_model is not certain"):
        find(where, KIMI)
