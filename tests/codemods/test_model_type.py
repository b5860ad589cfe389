import ast

import pytest
from real import (
    CLOSED,
    CONFIG,
    NATIVE,
    changes,
    class_in,
    cut,
    edits,
    patched,
    swap,
    text,
    transform,
)

from codemods.behaviour import assert_changes_nothing_twice, assert_holds, assert_refused
from vllm_eagle3_patches.gates.model_type import CLASS, MODEL_TYPES, entries, find_list

NAME = "model-type"
EDIT = edits("0.17.1")[NAME]
SOURCE = cut(text("0.17.1", CONFIG), CLASS)


def listed(source: str) -> list[str]:
    found = find_list(class_in(source, CLASS))
    assert found is not None
    return entries(found) or []


@pytest.mark.parametrize("version", CLOSED)
def test_noop_on_its_own_result(version: str) -> None:
    assert_changes_nothing_twice(version, NAME)


@pytest.mark.parametrize("version", [v for v in NATIVE if v < "0.22"])
def test_noop_on_the_list_that_upstream_extended(version: str) -> None:
    source = text(version, CONFIG)
    assert transform(source, EDIT) == source


@pytest.mark.parametrize("version", CLOSED)
def test_appends_the_model_types_and_keeps_the_others(version: str) -> None:
    edit = edits(version)[NAME]
    before = text(version, edit.path)
    after = transform(before, edit)
    assert listed(after) == [*listed(before), *MODEL_TYPES]
    gone, come = changes(before, after)
    assert len(gone) <= 1  # the list, where it stood on one line
    assert come[-4 - len(gone) :][:4] == [f'"{name}",' for name in MODEL_TYPES]


@pytest.mark.parametrize("version", CLOSED)
def test_holds(version: str) -> None:
    assert_holds(version, NAME)


def test_adds_only_what_is_missing() -> None:
    source = swap(
        text("0.17.1", CONFIG), '"nemotron_h",', "\"nemotron_h\",\n            'kimi_k2',"
    )
    assert listed(transform(source, EDIT)) == [
        *listed(source),
        *(name for name in MODEL_TYPES if name != "kimi_k2"),
    ]


def test_keeps_a_comment_behind_the_list() -> None:
    before = 'eagle3_target_supported = ["llama", "qwen", "minicpm", "gpt_oss"]'
    source = swap(text("0.15.0", CONFIG), before, f"{before}  # noqa: E501")
    assert "        ]  # noqa: E501\n" in transform(source, edits("0.15.0")[NAME])


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("        aux_hidden_states_supported = [", "        supported = [", "no list"),
        ('            "afmoe",', '            "afmoe",  # why', "comments"),
        ('            "afmoe",', "            # why\n            'afmoe',", "comments"),
        ('            "afmoe",', "            AFMOE,", "no list"),
        ('            "afmoe",', "            *AFMOE,", "no list"),
        ("aux_hidden_states_supported = [", "aux_hidden_states_supported: list = [", "no list"),
        ("aux_hidden_states_supported = [", "aux_hidden_states_supported = known = [", "no list"),
        ("for supported_model in aux_hidden_states_supported", "for supported_model in known",
         "no list"),
        ("        aux_hidden_states_supported = [", "        known = [", "no list"),
        (
            "        aux_hidden_states_supported = [",
            '        aux_hidden_states_supported = ["llama"]\n'
            "        aux_hidden_states_supported = [",
            "assigned 2 times",
        ),
        ("class SpeculativeConfig:", "class SpeculativeConfiguration:", "0 top-level classes"),
        ("class SpeculativeConfig:",
         "class SpeculativeConfig:\n    pass\n\n\nclass SpeculativeConfig:", "2 top-level classes"),
    ],
)  # fmt: skip
def test_refuses_another_structure(old: str, new: str, reason: str) -> None:
    assert_refused(swap(SOURCE, old, new), EDIT, reason)


def test_never_drops_a_statement_that_shares_the_line() -> None:
    source = swap(
        text("0.15.0", CONFIG),
        '"minicpm", "gpt_oss"]',
        '"minicpm", "gpt_oss"]; self.checked = True',
    )
    assert_refused(source, edits("0.15.0")[NAME], "assigned 0 times")


def test_refuses_when_upstream_has_removed_the_list() -> None:
    assert_refused(text("0.22.1", CONFIG), EDIT, "no list")


def test_the_message_names_the_new_model_types() -> None:
    method = next(
        node
        for node in ast.walk(class_in(patched("0.17.1", NAME)[CONFIG], CLASS))
        if isinstance(node, ast.Raise) and "is only supported for" in ast.unparse(node)
    )
    assert "{aux_hidden_states_supported}" in ast.unparse(method)
