from __future__ import annotations

import pytest

from preflight.examining import findings, of_class
from preflight.published import (
    DEEPSEEK_V3,
    KIMI_K25,
    KIMI_MHA,
    KIMI_MLA,
    QWEN3_4B,
    QWEN3_SPECFORGE,
    Config,
    with_settings,
)
from vllm_eagle3_patches.preflight import Severity

SPECULATIVE = (
    "--speculative-config.method eagle3 --speculative-config.num_speculative_tokens 3 "
    "--speculative-config.attention_backend "
)


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("0.15.0", Severity.ERROR),
        ("0.19.1", Severity.ERROR),
        ("0.21.0", None),  # V1 drafters choose their own from here on
        ("0.24.0", None),
        ("0.32.0", Severity.WARNING),  # V2 keeps the target's
    ],
)
def test_mla_backend_and_ordinary_drafter(version: str, severity: Severity | None) -> None:
    """nvidia/Kimi-K2.5-NVFP4 with lightseekorg/kimi-k2.5-eagle3 on 0.19-dev."""
    args = "--attention_config.backend FLASHINFER_MLA"
    found = of_class(findings(version, KIMI_K25, KIMI_MHA, args=args), "attention-backend")
    assert [f.severity for f in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("drafter", "args"),
    [
        (KIMI_MLA, "--attention-backend FLASHINFER_MLA"),
        (KIMI_MHA, "--attention-backend auto"),
        (KIMI_MHA, ""),
    ],
)
def test_twins_without_the_fault(drafter: Config, args: str) -> None:
    assert not of_class(findings("0.19.1", KIMI_K25, drafter, args=args), "attention-backend")


def test_backend_for_any_attention() -> None:
    args = "--attention-backend FLASH_ATTN"
    found = findings("0.19.1", QWEN3_4B, QWEN3_SPECFORGE, args=args)
    assert not of_class(found, "attention-backend")


@pytest.mark.parametrize(("own", "warned"), [("FLASH_ATTN", False), ("auto", True)])
def test_own_backend_of_the_drafter(own: str, warned: bool) -> None:
    args = f"--attention-backend FLASHINFER_MLA {SPECULATIVE}{own}"
    found = of_class(findings("0.32.0", KIMI_K25, KIMI_MHA, args=args), "attention-backend")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])


def test_version_before_explicit_backends_raised() -> None:
    args = "--attention-backend FLASHMLA"
    assert not of_class(findings("0.11.0", KIMI_K25, KIMI_MHA, args=args), "attention-backend")


@pytest.mark.parametrize(
    ("version", "read"), [("0.11.0", False), ("0.12.0", True), ("0.14.1", True), ("0.19.1", False)]
)
def test_variable_of_older_versions(
    version: str, read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """0.11.0 reads it too, and passes over a backend that does not fit."""
    drafter = with_settings(KIMI_MHA, vocab_size=129280)
    assert not of_class(findings(version, DEEPSEEK_V3, drafter), "attention-backend")
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "FLASHMLA")
    found = of_class(findings(version, DEEPSEEK_V3, drafter), "attention-backend")
    assert [f.severity for f in found] == ([Severity.ERROR] if read else [])


def test_option_that_is_none_yet() -> None:
    drafter = with_settings(KIMI_MHA, vocab_size=129280)
    args = "--attention-backend FLASHMLA"
    found = findings("0.12.0", DEEPSEEK_V3, drafter, args=args)
    assert not of_class(found, "attention-backend")
