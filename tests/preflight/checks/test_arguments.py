from __future__ import annotations

import json
from typing import Any

import pytest

from preflight.examining import findings, of_class
from preflight.published import KIMI_K25, KIMI_MHA, with_settings
from vllm_eagle3_patches.preflight import Finding, Severity

GOOD: dict[str, Any] = {"method": "eagle3", "num_speculative_tokens": 3}


def arguments(version: str, given: dict[str, Any], name: str = "drafter") -> list[Finding]:
    """The drafter's folder stands for the model; None takes a key out."""
    settings = {k: v for k, v in {**GOOD, **given}.items() if v is not None}
    args = f"--speculative-config '{json.dumps(settings)}'"
    found = findings(version, KIMI_K25, KIMI_MHA, args=args, name=name)
    return of_class(found, "argument")


@pytest.mark.parametrize("version", ["0.10.2", "0.18.0", "0.32.0"])
def test_good(version: str) -> None:
    assert not arguments(version, {})


@pytest.mark.parametrize("version", ["0.10.2", "0.32.0"])
@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"num_speculative_token": 3}, "num_speculative_tokens"),
        ({"draft_tensor_parallel": 1}, "draft_tensor_parallel_size"),
        ({"drafter_model_path_in_the_cloud": "x"}, "leave it out"),
        ({"tensor_parallel_size": 1}, "draft_tensor_parallel_size"),
        ({"num_speculative_tokens": None}, '"num_speculative_tokens": 3'),
        ({"num_speculative_tokens": 0}, '"num_speculative_tokens": 3'),
        ({"method": "egle3"}, "eagle3"),
        ({"method": "eagle"}, "eagle3"),
    ],
)
def test_bad(version: str, given: dict[str, Any], word: str) -> None:
    (found,) = arguments(version, given)
    assert found.severity is Severity.ERROR
    assert word in found.fix


@pytest.mark.parametrize(
    ("version", "key", "known"),
    [
        ("0.20.2", "attention_backend", False),
        ("0.21.0", "attention_backend", True),
        ("0.24.0", "kv_cache_dtype", False),
        ("0.27.1", "kv_cache_dtype", True),
        ("0.10.2", "disable_by_batch_size", True),
        ("0.32.0", "disable_by_batch_size", False),
    ],
)
def test_keys_come_and_go(version: str, key: str, known: bool) -> None:
    found = arguments(version, {key: 4})
    assert [f.severity for f in found] == ([] if known else [Severity.ERROR])


def test_other_method_is_a_warning() -> None:
    (found,) = arguments("0.18.0", {"method": "draft_model"})
    assert found.severity is Severity.WARNING


@pytest.mark.parametrize(
    ("name", "error"),
    [("kimi-k2.5-eagle3", False), ("eagle-heads-eagle3", True), ("kimi-drafter", True)],
)
def test_method_by_name(name: str, error: bool) -> None:
    found = arguments("0.18.0", {"method": None}, name)
    assert [f.severity for f in found] == ([Severity.ERROR] if error else [])
    assert not arguments("0.18.0", {}, name)


@pytest.mark.parametrize(("tokens", "error"), [(4, False), (5, True)])
def test_multiple_of_n_predict(tokens: int, error: bool) -> None:
    args = f"--speculative-config '{json.dumps({**GOOD, 'num_speculative_tokens': tokens})}'"
    drafter = with_settings(KIMI_MHA, n_predict=2)
    found = of_class(findings("0.18.0", KIMI_K25, drafter, args=args), "argument")
    assert [f.severity for f in found] == ([Severity.ERROR] if error else [])


@pytest.mark.parametrize("asked", [True, None])
def test_parallel_drafting(asked: bool | None) -> None:
    found = arguments("0.32.0", {"parallel_drafting": asked})
    assert [f.severity for f in found] == ([Severity.ERROR] if asked else [])


@pytest.mark.parametrize(
    ("args", "severities"),
    [
        ("--speculative-config {method:eagle3}", [Severity.ERROR]),
        ("--speculative-model x --num-speculative-tokens 3", [Severity.ERROR]),
        (  # the JSON is dropped, and its method with it
            '--speculative-config \'{"method": "eagle3"}\' '
            "--speculative-config.num_speculative_tokens 3",
            [Severity.WARNING, Severity.ERROR],
        ),
        ("", []),
    ],
)
def test_command_line(args: str, severities: list[Severity]) -> None:
    found = of_class(findings("0.18.0", KIMI_K25, KIMI_MHA, args=args), "argument")
    assert [f.severity for f in found] == severities


@pytest.mark.parametrize("version", ["0.10.2", "0.17.1", "0.32.0"])
@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("draft_tensor_parallel_size", "many", "a whole number"),
        ("max_model_len", [2048], "a whole number"),
        ("max_model_len", 2048.5, "a whole number"),
        ("revision", 3, "a string"),
    ],
)
def test_values_of_another_type(version: str, key: str, value: object, wanted: str) -> None:
    (found,) = [f for f in arguments(version, {key: value}) if key in f.detail]
    assert found.severity is Severity.ERROR and wanted in found.detail


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("draft_tensor_parallel_size", 0),
        ("rejection_sample_method", "float99"),
        ("use_local_argmax_reduction", "perhaps"),
    ],
)
def test_values_outside_what_the_field_takes(key: str, value: object) -> None:
    (found,) = [f for f in arguments("0.32.0", {key: value}) if key in f.detail]
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize("version", ["0.10.2", "0.17.1", "0.32.0"])
def test_values_that_pydantic_converts_are_in_order(version: str) -> None:
    settings = {"max_model_len": "2048", "draft_tensor_parallel_size": None, "revision": "main"}
    assert arguments(version, settings) == []
    if version == "0.32.0":
        assert arguments(version, {"enforce_eager": "yes", "max_model_len": 2048.0}) == []
