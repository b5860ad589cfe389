import ast
from types import SimpleNamespace

import pytest
from real import (
    KIMI,
    LOADER,
    WITH_KIMI,
    changes,
    cut,
    edits,
    method_in,
    patched,
    swap,
    text,
    transform,
)

from codemods.behaviour import assert_changes_nothing_twice, assert_holds, assert_refused
from vllm_eagle3_patches.gates.image_token import find_chain

NAME = "image-token"
EDIT = edits("0.17.1")[NAME]
PIXTRAL = "PixtralForConditionalGeneration"
SOURCE = cut(text("0.17.1", LOADER), "SpecDecodeBaseProposer")
ELSE = """            else:
                self.model.config.image_token_index = (
                    target_model.config.image_token_index
                )
"""
KIMI_BRANCH = f"""            elif self.get_model_name(target_model) == "{KIMI}":
                self.model.config.image_token_index = (
                    target_model.config.media_placeholder_token_id
                )
"""


def image_token(source: str, architecture: str) -> object:
    """What the loader takes for the image token of a target of this architecture."""
    chain = find_chain(method_in(source, "SpecDecodeBaseProposer", "load_model"))
    assert chain is not None
    proposer = SimpleNamespace(
        model=SimpleNamespace(config=SimpleNamespace()), get_model_name=lambda _: architecture
    )
    config = SimpleNamespace(
        image_token_id="id",
        image_token_index="index",
        media_placeholder_token_id="placeholder",
        vision_config=SimpleNamespace(image_token_id="vision id"),
    )
    names = {"self": proposer, "target_model": SimpleNamespace(config=config)}
    exec(compile(ast.Module([chain], []), LOADER, "exec"), names)
    return proposer.model.config.image_token_index


@pytest.mark.parametrize("version", WITH_KIMI)
def test_noop_on_its_own_result(version: str) -> None:
    assert_changes_nothing_twice(version, NAME)


@pytest.mark.parametrize("version", ["0.18.0", "0.19.1"])
def test_noop_on_the_branch_that_upstream_added(version: str) -> None:
    source = text(version, LOADER)
    assert transform(source, EDIT) == source


@pytest.mark.parametrize("version", WITH_KIMI)
def test_adds_one_branch_before_the_else(version: str) -> None:
    gone, come = changes(text(version, LOADER), patched(version, NAME)[LOADER])
    assert gone == []
    assert come == [line.strip() for line in KIMI_BRANCH.splitlines()]


@pytest.mark.parametrize("version", WITH_KIMI)
def test_only_kimi_reads_the_placeholder(version: str) -> None:
    before, after = text(version, LOADER), patched(version, NAME)[LOADER]
    assert image_token(before, KIMI) == "index"
    assert image_token(after, KIMI) == "placeholder"
    for other in (PIXTRAL, "Qwen2_5_VLForConditionalGeneration", "LlavaForConditionalGeneration"):
        assert image_token(after, other) == image_token(before, other)


@pytest.mark.parametrize("version", WITH_KIMI)
def test_holds(version: str) -> None:
    assert_holds(version, NAME)


@pytest.mark.parametrize("version", ["0.11.1", "0.11.2", "0.12.0", "0.14.1"])
def test_knows_the_chain_of_older_releases(version: str) -> None:
    loader = edits("0.17.1")[NAME]
    edit = type(loader)(
        **{**vars(loader), "arguments": {**loader.arguments, "cls": "EagleProposer"}}
    )
    gone, come = changes(text(version, LOADER), transform(text(version, LOADER), edit))
    assert gone == []
    assert come == [line.strip() for line in KIMI_BRANCH.splitlines()]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (ELSE, "", "does not end in"),
        (ELSE, ELSE.replace("config.image_token_index\n", "config.token\n"), "does not end in"),
        (ELSE, f"{ELSE}                self.seen = True\n", "does not end in"),
        (ELSE, KIMI_BRANCH.replace("media_placeholder_token_id", "image_token_id") + ELSE,
         "does not read target_model.config.media_placeholder_token_id"),
        ("    def load_model(", "    def load(", "no method load_model"),
        ("    def load_model(", "    def load_model(self): ...\n\n    def load_model(",
         "2 methods"),
        ("class SpecDecodeBaseProposer:", "class Proposer:", "0 top-level classes"),
        ("class SpecDecodeBaseProposer:", "class SpecDecodeBaseProposer: ...\n\n\n"
         "class SpecDecodeBaseProposer:", "2 top-level classes"),
    ],
)  # fmt: skip
def test_refuses_another_structure(old: str, new: str, reason: str) -> None:
    assert_refused(swap(SOURCE, old, new), EDIT, reason)


def test_refuses_a_loader_without_a_chain() -> None:
    assert_refused(text("0.18.0", LOADER).replace("get_model_name", "name_of"), EDIT, "no chain")


def test_refuses_the_chain_standing_twice() -> None:
    source = SOURCE
    start = source.index("            if self.get_model_name(target_model) in [")
    end = source.index(ELSE) + len(ELSE)
    chain = source[start:end]
    assert_refused(source[:end] + chain + source[end:], EDIT, "2 such chains")
