from __future__ import annotations

import pytest

from preflight.examining import findings, of_class
from preflight.published import (
    GPT_OSS_120B,
    GPT_OSS_NVIDIA,
    KIMI_K25,
    KIMI_MHA,
    LLAMA31_8B,
    LLAMA31_YUHUILI,
    with_settings,
)
from vllm_eagle3_patches.preflight import Severity


@pytest.mark.parametrize("version", ["0.10.2", "0.11.0", "0.11.1", "0.18.0"])
def test_mxfp4_of_the_target(version: str) -> None:
    """nvidia/gpt-oss-120b-Eagle3 on 0.11.0 dies in QKVParallelLinear."""
    found = of_class(findings(version, GPT_OSS_120B, GPT_OSS_NVIDIA), "quantization")
    assert [f.severity for f in found] == ([Severity.ERROR] if version == "0.11.0" else [])


@pytest.mark.parametrize("version", ["0.11.0", "0.11.1"])
def test_method_that_may_leave_the_drafter_alone(version: str) -> None:
    found = of_class(findings(version, KIMI_K25, KIMI_MHA), "quantization")
    assert [f.severity for f in found] == ([Severity.WARNING] if version == "0.11.0" else [])


@pytest.mark.parametrize("args", ["", "--quantization fp8"])
def test_method_of_the_command_line(args: str) -> None:
    found = of_class(findings("0.11.0", LLAMA31_8B, LLAMA31_YUHUILI, args=args), "quantization")
    assert [f.severity for f in found] == ([Severity.WARNING] if args else [])


def test_quantized_drafter_has_its_own() -> None:
    drafter = with_settings(GPT_OSS_NVIDIA, quantization_config={"quant_method": "mxfp4"})
    assert not of_class(findings("0.11.0", GPT_OSS_120B, drafter), "quantization")


@pytest.mark.parametrize(("method", "warned"), [("awq", True), ("fp8", False)])
def test_method_of_the_speculative_config(method: str, warned: bool) -> None:
    args = (
        "--speculative-config.method eagle3 --speculative-config.num_speculative_tokens 3 "
        f"--speculative-config.quantization {method}"
    )
    found = of_class(findings("0.18.0", LLAMA31_8B, LLAMA31_YUHUILI, args=args), "quantization")
    assert [f.severity for f in found] == ([Severity.WARNING] if warned else [])
