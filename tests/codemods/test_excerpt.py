"""What LibCST is given of a file, and that the rest comes back character for character."""

from __future__ import annotations

import ast

import pytest
from real import find, sources
from wheels import tree

from vllm_eagle3_patches import codemods, plan
from vllm_eagle3_patches.codemods import excerpt
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.sources import decode

TEXT = '''"""A file."""
import os  # why

# About a.
@decorated(
    "x"
)
class A(object):  # noqa
    """\x0cnot a line end"""

    def f(self):
        return "é"  # behind

    # About g.
    @property
    def g(self): return 1
    # Trailing.

async def h():
    pass
class B: x = 1
y = 2; z = 3
def k(): pass; w = 4
class C:
    pass
'''
FORMS = [TEXT, TEXT.replace("\n", "\r\n"), TEXT.rstrip("\n"), TEXT.replace("    ", "\t")]


@pytest.mark.parametrize("text", FORMS, ids=["lf", "crlf", "no newline at the end", "tabs"])
@pytest.mark.parametrize(
    "scopes", [{}, {"A": None}, {"A": ()}, {"A": ("f",)}, {"B": None, "C": ()}, {"A": ("g",)}]
)
def test_the_rest_comes_back(text: str, scopes: dict[str, tuple[str, ...] | None]) -> None:
    part = excerpt.cut(text, scopes)
    ast.parse(part.text)
    assert part.restored(part.text) == text
    assert part.parts


def test_the_classes_asked_for_stay_whole() -> None:
    part = excerpt.cut(TEXT, {"A": None})
    assert 'return "é"  # behind' in part.text
    assert "# About a." in part.text and "# Trailing." in part.text
    assert "x = 1" not in part.text
    assert "y = 2; z = 3" in part.text
    assert len(part.parts) == 4


def test_only_the_methods_that_are_read_stay() -> None:
    part = excerpt.cut(TEXT, {"A": ("f",)})
    assert 'return "é"' in part.text and "return 1" not in part.text
    assert "def g():" in part.text  # its name stands where it stood


@pytest.mark.parametrize("text", ["class A:\n  x = (\n", f'x = "{excerpt.MARK}0"\nclass A: ...\n'])
def test_what_cannot_be_cut_stays_whole(text: str) -> None:
    assert excerpt.cut(text, {}) == excerpt.Excerpt(text)


def test_a_lost_or_moved_part_is_refused() -> None:
    part = excerpt.cut("class A: ...\nclass B: ...\n", {})
    first, second = part.text.splitlines(keepends=True)
    for text in (first, second + first, part.text + first):
        with pytest.raises(RefusedError, match="moved or lost"):
            part.restored(text)


@pytest.mark.parametrize(
    ("version", "architecture"),
    [
        ("0.11.2", "GPT2LMHeadModel"),
        ("0.15.0", "KimiK25ForConditionalGeneration"),
        ("0.17.1", "KimiK25ForConditionalGeneration"),
        ("0.17.1", "Glm4MoeForCausalLM"),
        ("0.32.0", "InternLM2ForCausalLM"),
        ("0.32.0", "KimiVLForConditionalGeneration"),
    ],
)
def test_the_edits_come_to_the_same_on_the_whole_file(
    version: str, architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = sources(version)
    edits = plan.edits_for(where, find(where, architecture))
    texts = {e.path: decode(where.data(e.path), e.path) for e in edits}
    own = {path: [e for e in edits if e.path == path] for path in texts}
    assert tree(version) == where.root
    cut = {path: codemods.apply(text, own[path], path) for path, text in texts.items()}
    assert cut != texts
    monkeypatch.setattr(excerpt, "cut", lambda source, _: excerpt.Excerpt(source))
    assert cut == {path: codemods.apply(text, own[path], path) for path, text in texts.items()}
