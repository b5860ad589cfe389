"""Properties by which the drafter loader finds embedding, head and decoder, on real models."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import libcst as cst
import pytest
from real import class_in, find, finding, sources, transform, with_texts

from codemods.behaviour import assert_sound
from vllm_eagle3_patches import plan
from vllm_eagle3_patches.codemods import aliases, head
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import Edit, State
from vllm_eagle3_patches.target import Request
from vllm_eagle3_patches.target import find as find_target

VERSIONS = ["0.11.2", "0.17.1", "0.32.0"]
# Architecture -> class -> property -> the attribute that it stands for.
EXPECTED = {
    "GPT2LMHeadModel": {
        "GPT2LMHeadModel": {"model": "transformer"},
        "GPT2Model": {"embed_tokens": "wte", "layers": "h"},
    },
    "GPTJForCausalLM": {
        "GPTJForCausalLM": {"model": "transformer"},
        "GPTJModel": {"embed_tokens": "wte", "layers": "h"},
    },
    "FalconForCausalLM": {
        "FalconForCausalLM": {"model": "transformer"},
        "FalconModel": {"embed_tokens": "word_embeddings", "layers": "h"},
    },
    "BloomForCausalLM": {
        "BloomForCausalLM": {"model": "transformer"},
        "BloomModel": {"embed_tokens": "word_embeddings", "layers": "h"},
    },
    "GPTNeoXForCausalLM": {
        "GPTNeoXForCausalLM": {"model": "gpt_neox"},
        "GPTNeoXModel": {"embed_tokens": "embed_in"},
    },
    "InternLM2ForCausalLM": {
        "InternLM2Model": {"embed_tokens": "tok_embeddings"},
    },
    "BailingMoeForCausalLM": {"BailingMoeModel": {"embed_tokens": "word_embeddings"}},
    "DbrxForCausalLM": {
        "DbrxForCausalLM": {"model": "transformer"},
        "DbrxModel": {"embed_tokens": "wte", "layers": "blocks"},
    },
}
# Where the head has another name, or is the embedding.
HEADS = {
    "GPTNeoXForCausalLM": "embed_out",
    "InternLM2ForCausalLM": "output",
    "CohereForCausalLM": "model.embed_tokens",
}

EACH = [(v, n) for v in VERSIONS for n in EXPECTED if (v, n) != ("0.32.0", "GPTNeoXForCausalLM")]

each = pytest.mark.parametrize(("version", "name"), EACH)


def edits(version: str, name: str, codemod: str = "aliases") -> list[Edit]:
    where = sources(version)
    target = find_target(where, Request(name, "any"), version)
    return [e for e in plan.edits_for(where, target) if e.codemod == codemod]


def properties(source: str, cls: str) -> dict[str, ast.FunctionDef]:
    return {
        s.name: s
        for s in class_in(source, cls).body
        if isinstance(s, ast.FunctionDef) and "property" in map(ast.unparse, s.decorator_list)
    }


@each
def test_the_properties_give_the_parts_that_the_loader_wants(version: str, name: str) -> None:
    found = {}
    for edit in edits(version, name):
        before = sources(version).data(edit.path).decode()
        after = transform(before, edit)
        assert_sound(before, after, edit)
        cls = edit.arguments["cls"]
        new = properties(after, cls).keys() - properties(before, cls).keys()
        found[cls] = {}
        for alias in new:
            node = ast.ClassDef("Stand", [], [], [properties(after, cls)[alias]], [])
            names: dict[str, Any] = {"nn": SimpleNamespace(Module=object)}
            module = ast.fix_missing_locations(ast.Module([node], []))
            exec(compile(module, edit.path, "exec"), names)
            stand, part = names["Stand"](), object()
            path = EXPECTED[name][cls][alias].split(".")
            stand.__dict__[path[0]] = SimpleNamespace(**{path[1]: part}) if path[1:] else part
            assert getattr(stand, alias) is part
            found[cls][alias] = ".".join(path)
    assert found == EXPECTED[name]


@each
def test_no_module_is_registered_twice(version: str, name: str) -> None:
    """What `__init__` stores makes the keys of the state dict: it stays as it is, as does the
    loading of weights, and no alias has the name of a part that the class has."""
    for edit in edits(version, name):
        before = sources(version).data(edit.path).decode()
        after, cls = transform(before, edit), edit.arguments["cls"]
        old = {getattr(s, "name", ""): ast.dump(s) for s in class_in(before, cls).body}
        new = {getattr(s, "name", ""): ast.dump(s) for s in class_in(after, cls).body}
        assert {k: new[k] for k in old} == old
        stored = {
            n.attr
            for n in ast.walk(class_in(before, cls))
            if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
        }
        assert not stored & (new.keys() - old.keys())


@pytest.mark.parametrize("name", EXPECTED)
def test_closed_before_and_native_after(name: str) -> None:
    version = "0.17.1"
    assert finding(sources(version), name, "weight-sharing").state is State.CLOSED
    texts: dict[str, str] = {}
    for edit in edits(version, name) + edits(version, name, "head"):
        before = texts.get(edit.path) or sources(version).data(edit.path).decode()
        texts[edit.path] = transform(before, edit)
    where = with_texts(version, texts)
    assert finding(where, name, "weight-sharing").state is State.NATIVE
    assert [e for e in plan.edits_for(where, find(where, name)) if e.codemod == "aliases"] == []


@pytest.mark.parametrize(
    ("version", "name"),
    [(v, n) for v in VERSIONS for n in HEADS if (v, n) != ("0.32.0", "GPTNeoXForCausalLM")],
)
def test_the_head_is_an_instance_attribute_that_can_be_deleted(version: str, name: str) -> None:
    """vLLM's pooling adapters (to 0.12.0) delete `lm_head`, and so does its loader of drafters, of
    which EagleCohereForCausalLM is a subclass of a target: neither can delete a property."""
    (edit,) = edits(version, name, "head")
    before = sources(version).data(edit.path).decode()
    after = transform(before, edit)
    assert_sound(before, after, edit)
    (init,) = [s for s in class_in(after, name).body if getattr(s, "name", "") == "__init__"]
    assert isinstance(init, ast.FunctionDef)
    path = HEADS[name]
    module, part = SimpleNamespace(), object()
    names = path.split(".")
    setattr(module, names[0], SimpleNamespace(**{names[1]: part}) if names[1:] else part)
    exec(ast.unparse(init.body[-1]), {"self": module})
    assert module.lm_head is part
    del module.lm_head
    assert "lm_head" not in properties(after, name)


def test_a_head_is_named_once_and_only_in_a_class_with_an_init() -> None:
    module = cst.parse_module("class A(B):\n    def __init__(self):\n        self.out = 1\n")
    once = head.transform(module, cls="A", head="self.out")
    assert once.code == module.code + (
        '        self.__dict__["lm_head"] = self.out  # an alias, not a submodule\n'
    )
    assert head.transform(once, cls="A", head="self.out") is once
    with pytest.raises(RefusedError, match="no method __init__"):
        head.transform(cst.parse_module("class A(B):\n    x = 1\n"), cls="A", head="self.out")


SOURCE = """\
class A(Base):
    def __init__(self):
        self.wte = Table()

    # about forward
    def forward(self):
        return self.wte
"""


def transformed(source: str, **names: str) -> str:
    return aliases.transform(cst.parse_module(source), cls="A", **names).code


def test_noop_where_the_property_is_there() -> None:
    once = transformed(SOURCE, embed_tokens="self.wte")
    assert transformed(once, embed_tokens="self.wte") == once
    assert transformed(SOURCE) == SOURCE


def test_stands_in_front_of_forward() -> None:
    assert transformed(SOURCE, embed_tokens="self.wte", layers="self.h") == SOURCE.replace(
        "    # about forward\n",
        "    @property\n    def embed_tokens(self) -> nn.Module:\n        return self.wte\n\n"
        "    @property\n    def layers(self) -> nn.Module:\n        return self.h\n\n"
        "    # about forward\n",
    )


def test_keeps_windows_line_ends() -> None:
    crlf = SOURCE.replace("\n", "\r\n")
    assert transformed(crlf, layers="self.h") == transformed(SOURCE, layers="self.h").replace(
        "\n", "\r\n"
    )
