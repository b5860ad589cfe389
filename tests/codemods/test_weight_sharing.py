import ast
from types import SimpleNamespace

import pytest
from real import (
    BARE_DECODER,
    LOADER,
    changes,
    cut,
    edits,
    method_in,
    patched,
    swap,
    text,
    transform,
)

from codemods.behaviour import (
    assert_changes_nothing_twice,
    assert_holds,
    assert_refused,
    assert_sound,
)
from vllm_eagle3_patches.gates.weight_sharing import LANGUAGE_MODEL, follows

NAME = "weight-sharing"
EDIT = edits("0.15.1")[NAME]
SOURCE = cut(text("0.15.1", LOADER), "SpecDecodeBaseProposer")
TAKEN = f"            {LANGUAGE_MODEL[0]}\n"


def shared(target: object) -> object:
    """What the patched loader shares weights with, for a multimodal target."""
    loader = patched("0.15.1", NAME)[LOADER]
    found = follows(method_in(loader, "SpecDecodeBaseProposer", "load_model"))
    assert found is not None and found[1] is not None
    names = {"target_model": target, "SimpleNamespace": SimpleNamespace}
    exec(compile(ast.Module([found[0], found[1]], []), LOADER, "exec"), names)
    return names["target_language_model"]


@pytest.mark.parametrize("version", BARE_DECODER)
def test_noop_on_its_own_result(version: str) -> None:
    assert_changes_nothing_twice(version, NAME)


@pytest.mark.parametrize("version", BARE_DECODER)
def test_adds_a_branch_and_an_import(version: str) -> None:
    gone, come = changes(text(version, LOADER), patched(version, NAME)[LOADER])
    assert gone == []
    assert come == [
        "from types import SimpleNamespace",
        'if not hasattr(target_language_model, "model"):',
        "# A bare decoder: the wrapper around it holds the lm_head.",
        "target_language_model = SimpleNamespace(",
        "model=target_language_model, lm_head=target_model.lm_head",
        ")",
    ]


def test_a_bare_decoder_is_shared_with_the_head_of_its_wrapper() -> None:
    decoder = SimpleNamespace(embed_tokens=object())
    wrapper = SimpleNamespace(get_language_model=lambda: decoder, lm_head=object())
    language_model = shared(wrapper)
    assert language_model.model is decoder
    assert language_model.lm_head is wrapper.lm_head


def test_a_whole_language_model_is_shared_as_it_is() -> None:
    language_model = SimpleNamespace(model=object(), lm_head=object())
    assert shared(SimpleNamespace(get_language_model=lambda: language_model)) is language_model


@pytest.mark.parametrize("version", BARE_DECODER)
def test_holds(version: str) -> None:
    assert_holds(version, NAME)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            TAKEN,
            "            target_language_model = target_model.language_model\n",
            "no statement",
        ),
        (TAKEN, TAKEN + TAKEN, "stands 2 times"),
        (TAKEN, TAKEN.replace("\n", "; self.seen = True\n"), "stands 0 times"),
        (TAKEN, TAKEN.replace("target_language_model", "language_model"), "no statement"),
        ("    def load_model(", "    def load(", "no method load_model"),
        ("class SpecDecodeBaseProposer:", "class Proposer:", "0 top-level classes"),
    ],
)
def test_refuses_another_structure(old: str, new: str, reason: str) -> None:
    assert_refused(swap(SOURCE, old, new), EDIT, reason)


@pytest.mark.parametrize("version", ["0.16.0", "0.17.1", "0.18.0"])
def test_knows_the_loader_of_later_releases(version: str) -> None:
    """There the statement has a cast around the target (`LANGUAGE_MODEL[1]`)."""
    source = text(version, LOADER)
    after = transform(source, EDIT)
    gone, come = changes(source, after)
    assert gone == [] and 'if not hasattr(target_language_model, "model"):' in come
    assert_sound(source, after, EDIT)
