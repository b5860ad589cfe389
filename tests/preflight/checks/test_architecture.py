from __future__ import annotations

import pytest
from real import sources

from preflight.examining import findings, matching, of_class
from preflight.published import (
    DEEPSEEK_V3,
    KIMI_K25,
    KIMI_MHA,
    KIMI_MLA,
    LLAMA31_8B,
    QWEN3_4B,
    QWEN3_SPECFORGE,
    SPECULATORS,
    with_settings,
)
from vllm_eagle3_patches.preflight import Severity


@pytest.mark.parametrize(
    ("version", "registered"), [("0.10.1", False), ("0.10.2", True), ("0.18.0", True)]
)
def test_llama_eagle3_name(version: str, registered: bool) -> None:
    found = of_class(findings(version, QWEN3_4B, QWEN3_SPECFORGE), "drafter")
    assert [f.severity for f in found] == ([] if registered else [Severity.ERROR])
    if not registered:
        assert '"architectures": ["LlamaForCausalLM"]' in found[0].fix
        renamed = with_settings(QWEN3_SPECFORGE, architectures=["LlamaForCausalLM"])
        assert not of_class(findings(version, QWEN3_4B, renamed), "drafter")


@pytest.mark.parametrize("version", ["0.15.0", "0.17.1", "0.18.0", "0.32.0"])
def test_mla_drafter(version: str) -> None:
    found = matching(findings(version, KIMI_K25, KIMI_MLA), "drafter", "not in the registry")
    known = version in ("0.18.0", "0.32.0")
    assert [f.severity for f in found] == ([] if known else [Severity.ERROR])


@pytest.mark.parametrize("version", ["0.15.0", "0.18.0", "0.32.0"])
def test_mla_drafter_that_becomes_mtp(version: str) -> None:
    drafter = with_settings(KIMI_MLA, model_type="deepseek_v3")
    (found,) = matching(findings(version, KIMI_K25, drafter), "drafter", "DeepSeekMTPModel")
    assert found.severity is Severity.ERROR
    assert '"model_type": "kimi_k2"' in found.fix
    assert ("0.18.0" in found.fix) is (version == "0.15.0")


@pytest.mark.parametrize(("version", "known"), [("0.20.2", False), ("0.24.0", True)])
def test_qwen3_drafter(version: str, known: bool) -> None:
    drafter = with_settings(QWEN3_SPECFORGE, architectures=["Eagle3Qwen3ForCausalLM"])
    found = of_class(findings(version, QWEN3_4B, drafter), "drafter")
    assert [f.severity for f in found] == ([] if known else [Severity.ERROR])


def test_prefixed_name() -> None:
    drafter = with_settings(QWEN3_SPECFORGE, architectures=["Qwen2ForCausalLM"])
    (found,) = of_class(findings("0.18.0", QWEN3_4B, drafter), "drafter")
    assert "'Qwen2ForCausalLM', which vLLM looks up as 'Eagle3Qwen2ForCausalLM'" in found.detail


def test_own_code_is_no_sure_failure() -> None:
    drafter = with_settings(
        QWEN3_SPECFORGE,
        architectures=["MyEagle3ForCausalLM"],
        auto_map={"AutoModel": "modeling_my.MyEagle3"},
    )
    (found,) = of_class(findings("0.18.0", QWEN3_4B, drafter), "drafter")
    assert found.severity is Severity.WARNING


def test_no_architecture() -> None:
    drafter = with_settings(KIMI_MHA, architectures=None)
    (found,) = of_class(findings("0.18.0", KIMI_K25, drafter), "drafter")
    assert "names no architecture" in found.detail


@pytest.mark.parametrize(
    ("version", "kind", "error"),
    [
        ("0.18.0", "llama", False),
        ("0.18.0", "gemma3_text", False),  # always a Llama drafter there
        ("0.24.0", "llama", False),
        ("0.24.0", "qwen3", False),
        ("0.24.0", "gemma3_text", True),
        ("0.32.0", "gemma3_text", True),
    ],
)
def test_speculators_model_type(version: str, kind: str, error: bool) -> None:
    layer = {**SPECULATORS["transformer_layer_config"], "model_type": kind}
    drafter = with_settings(SPECULATORS, transformer_layer_config=layer)
    found = matching(findings(version, LLAMA31_8B, drafter), "drafter", "Unsupported model_type")
    assert [f.severity for f in found] == ([Severity.ERROR] if error else [])


@pytest.mark.parametrize(("kind", "error"), [("eagle3", False), ("hydra", True)])
def test_speculators_algorithm(kind: str, error: bool) -> None:
    drafter = with_settings(SPECULATORS, speculators_model_type=kind)
    found = matching(findings("0.18.0", LLAMA31_8B, drafter), "drafter", "speculators_model_type")
    assert [f.severity for f in found] == ([Severity.ERROR] if error else [])


def test_refused_by_the_proposer() -> None:
    """As 0.17.1 would with the MLA drafter registered but the assertion unchanged."""
    path = "vllm/v1/spec_decode/eagle.py"
    installed = sources("0.18.0")
    text = installed.data(path).decode()
    both = "self.model, (Eagle3LlamaForCausalLM, Eagle3DeepseekV2ForCausalLM)"
    assert both in text
    older = installed.with_overlay(
        {path: text.replace(both, "self.model, Eagle3LlamaForCausalLM").encode()}
    )
    (found,) = of_class(findings("0.18.0", DEEPSEEK_V3, KIMI_MLA, where=older), "drafter")
    assert found.severity is Severity.ERROR
    assert "isinstance(self.model, Eagle3LlamaForCausalLM)" in found.detail
    assert not of_class(findings("0.18.0", KIMI_K25, KIMI_MHA, where=older), "drafter")


def test_eagle_1_head() -> None:
    """yuhuili/EAGLE-Qwen2-7B-Instruct on 0.10.2 (vLLM issue 24967)."""
    drafter = with_settings(
        QWEN3_SPECFORGE, architectures=["Qwen2ForCausalLM"], draft_vocab_size=None
    )
    args = "--speculative-config.method eagle --speculative-config.num_speculative_tokens 3"
    (found,) = of_class(findings("0.10.2", QWEN3_4B, drafter, None, args=args), "drafter")
    assert found.severity is Severity.ERROR
    assert "'EagleQwen2ForCausalLM'" in found.detail
