"""Aux layer ids that cannot be used, told whole at the first look."""

from __future__ import annotations

from typing import Any

import pytest

from preflight.examining import errors, findings, of_class
from preflight.published import KIMI_K25, KIMI_MHA, LLAMA31_8B, LLAMA31_YUHUILI, Config
from vllm_eagle3_patches.preflight import Finding

KEY = "eagle_aux_hidden_state_layer_ids"
NEW, OLD = "0.32.0", "0.18.0"  # V1 of the older one does not read the nested key


def told(version: str, settings: Config) -> list[Finding]:
    config = {**LLAMA31_YUHUILI, "architectures": ["LlamaForCausalLMEagle3"], **settings}
    return of_class(findings(version, LLAMA31_8B, config), "aux-layers")


def test_ids_that_are_neither_read_nor_usable() -> None:
    """The advice to move them to another key would lead to the next two errors."""
    (found,) = told(OLD, {"eagle_config": {KEY: [2, 2, 99]}})
    assert found.severity.value == "warning"
    assert "does not read" in found.detail
    assert "2 stands twice" in found.detail and "the target has no layer 99" in found.detail
    assert "[2, 2, 99]" not in found.fix and "distinct and between 1 and 31" in found.fix


def test_the_same_ids_where_they_are_read() -> None:
    found = told(NEW, {KEY: [2, 2, 99]})
    assert {f.severity.value for f in found} == {"error"} and len(found) == 2


def test_good_ids_that_are_not_read_may_be_moved() -> None:
    (found,) = told(OLD, {"eagle_config": {KEY: [3, 12, 24]}})
    assert f'write "{KEY}": [3, 12, 24]' in found.fix


@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize("value", ["2,3", 7, {"a": 1}, True])
@pytest.mark.parametrize("nested", [False, True])
def test_ids_that_are_no_list_are_passed_over(version: str, value: Any, nested: bool) -> None:
    (found,) = told(version, {"eagle_config": {KEY: value}} if nested else {KEY: value})
    assert found.severity.value == "warning"
    assert f"is {value!r}, no list of layer ids" in found.detail
    assert "passes over it and takes (2, 16, 29)" in found.detail
    assert f'"{KEY}": [2, 16, 29] at the top level' in found.fix


@pytest.mark.parametrize("value", [["2", "16", "29"], [2, None, 29], [2, 16.5, 29]])
def test_a_list_that_holds_no_ids_is_taken_and_fails(value: list[object]) -> None:
    (found,) = told(NEW, {KEY: value})
    assert found.severity.value == "error" and "fc gets too few states" in found.detail


@pytest.mark.parametrize("value", [[2, 16, 29], [2.0, 16.0, 29.0]])
def test_whole_numbers_are_ids(value: list[float]) -> None:
    assert told(NEW, {KEY: value}) == []


def with_method(method: str, config: Config) -> list[Finding]:
    args = f"--speculative-config.method {method} --speculative-config.num_speculative_tokens 3"
    return errors(findings("0.18.0", KIMI_K25, config, args=args))


def test_the_method_of_eagle_1_for_an_eagle_3_head_is_one_finding() -> None:
    (found,) = with_method("eagle", KIMI_MHA)
    assert found.cls == "argument" and found.fix == '"method": "eagle3"'
    assert with_method("eagle3", KIMI_MHA) == []


def test_a_head_without_a_mark_is_known_by_its_vocabulary() -> None:
    """`LlamaForCausalLM` names an EAGLE-1 head too; `draft_vocab_size` is EAGLE-3's."""
    args = "--speculative-config.method eagle --speculative-config.num_speculative_tokens 3"
    (found,) = errors(findings("0.18.0", LLAMA31_8B, LLAMA31_YUHUILI, args=args))
    assert found.cls == "argument"
