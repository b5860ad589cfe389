"""`SupportsEagle3` and `EagleModelMixin` of every release."""

from __future__ import annotations

import pytest
from real import CLOSED, NATIVE, patched, sources, with_texts

from vllm_eagle3_patches import protocol
from vllm_eagle3_patches.sources import ClassSite, Sources, find_classes

MODELS = "vllm/model_executor/models"


def site(where: Sources, path: str, cls: str) -> ClassSite:
    (found,) = find_classes(where, f"{MODELS}/{path}.py", cls)
    return found


@pytest.mark.parametrize("version", [*CLOSED, *NATIVE])
def test_the_mixin_is_there_from_0_18_0(version: str) -> None:
    assert protocol.has_mixin(sources(version)) is (version in NATIVE)


@pytest.mark.parametrize("version", [*CLOSED, *NATIVE])
def test_the_names_are_those_of_the_release(version: str) -> None:
    (cls,) = find_classes(sources(version), protocol.PATH, protocol.NAME)
    assert cls.method(protocol.SETTER) is not None
    default = protocol.DEFAULT if version in NATIVE else protocol.GETTER
    assert cls.method(default) is not None
    assert (cls.method(protocol.GETTER) is None) is (version in NATIVE)


@pytest.mark.parametrize("version", [*CLOSED, *NATIVE])
def test_llama_claims_it_in_every_release(version: str) -> None:
    where = sources(version)
    assert protocol.claims(where, site(where, "llama", "LlamaForCausalLM"))
    assert not protocol.claims(where, site(where, "gpt2", "GPT2LMHeadModel"))


@pytest.mark.parametrize("version", CLOSED)
def test_deepseek_claims_it_after_the_edit(version: str) -> None:
    for where, claimed in (
        (sources(version), False),
        (with_texts(version, patched(version)), True),
    ):
        cls = site(where, "deepseek_v2", "DeepseekV3ForCausalLM")
        assert protocol.claims(where, cls) is claimed
        assert protocol.defines(where, cls, protocol.SETTER) is claimed
        assert protocol.defines(where, cls, protocol.GETTER) is claimed


def test_both_methods_without_the_base_are_no_claim() -> None:
    """Apertus of 0.10.2 to 0.17.1: the isinstance test of 0.11.1 on wants the base."""
    where = sources("0.17.1")
    cls = site(where, "apertus", "ApertusForCausalLM")
    assert not protocol.claims(where, cls)
    for method in protocol.METHODS:
        assert protocol.defines(where, cls, method)


@pytest.mark.parametrize("version", NATIVE)
def test_the_protocols_own_methods_are_nobodys_definition(version: str) -> None:
    """From 0.18.0 they have bodies: inheriting those is no method of one's own."""
    where = sources(version)
    assert not protocol.defines(where, site(where, "llama", "LlamaForCausalLM"), protocol.SETTER)
    cls = site(where, "deepseek_v2", "DeepseekV2ForCausalLM")
    assert protocol.defines(where, cls, protocol.SETTER)


def test_a_class_does_not_inherit_itself() -> None:
    where = sources("0.32.0")
    (mixin,) = find_classes(where, protocol.PATH, protocol.MIXIN)
    assert not protocol.inherits(where, mixin, protocol.MIXIN)
    assert protocol.inherits(where, site(where, "llama", "LlamaModel"), protocol.MIXIN)
