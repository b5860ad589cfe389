import ast
from types import SimpleNamespace

import pytest
from real import (
    CLOSED,
    DEEPSEEK_FILE,
    KIMI,
    KIMI_FILE,
    WITH_KIMI,
    changes,
    class_in,
    cut,
    edits,
    method_in,
    patched,
    swap,
    text,
    transform,
    with_texts,
)

from codemods.behaviour import (
    assert_changes_nothing_twice,
    assert_holds,
    assert_refused,
    assert_sound,
)
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.protocol import METHODS
from vllm_eagle3_patches.protocol import NAME as PROTOCOL
from vllm_eagle3_patches.sources import ClassSite, Sources, find_classes

CAUSAL, WRAPPER = "interface", "interface-wrapper"
CLASSES = {CAUSAL: (DEEPSEEK_FILE, "DeepseekV2ForCausalLM"), WRAPPER: (KIMI_FILE, KIMI)}
EDIT = edits("0.17.1")[CAUSAL]
EACH = [(version, CAUSAL) for version in CLOSED] + [(version, WRAPPER) for version in WITH_KIMI]
SOURCE = cut(text("0.17.1", DEEPSEEK_FILE), "DeepseekV2ForCausalLM")
HEADER = """class DeepseekV2ForCausalLM(
    nn.Module, SupportsPP, DeepseekV2MixtureOfExperts, SupportsLoRA, SupportsEagle
):
"""
IMPORT = "from .interfaces import MixtureOfExperts, SupportsEagle, SupportsLoRA, SupportsPP\n"
FORWARD = "    def forward(\n"


def base_names(source: str, cls: str) -> list[str]:
    return [ast.unparse(base) for base in class_in(source, cls).bases]


def with_header(header: str) -> str:
    return swap(SOURCE, HEADER, header)


@pytest.mark.parametrize(("version", "name"), EACH)
def test_noop_on_its_own_result(version: str, name: str) -> None:
    assert_changes_nothing_twice(version, name)


@pytest.mark.parametrize("version", ["0.18.0", "0.19.1", "0.20.2"])
def test_noop_on_the_class_that_upstream_extended(version: str) -> None:
    source = text(version, DEEPSEEK_FILE)
    assert transform(source, EDIT) == source


@pytest.mark.parametrize(("version", "name"), EACH)
def test_adds_the_base_behind_the_others(version: str, name: str) -> None:
    path, cls = CLASSES[name]
    before, after = text(version, path), patched(version, name)[path]
    assert base_names(after, cls) == [*base_names(before, cls), PROTOCOL]
    assert [n.name for n in class_in(after, cls).body if isinstance(n, ast.FunctionDef)] == [
        added
        for n in class_in(before, cls).body
        if isinstance(n, ast.FunctionDef)
        for added in ([*METHODS, n.name] if n.name == "forward" else [n.name])
    ]


@pytest.mark.parametrize(("version", "name"), EACH)
def test_imports_the_base_beside_its_siblings(version: str, name: str) -> None:
    path, _ = CLASSES[name]

    def imported(source: str) -> list[str]:
        (names,) = [
            [alias.name for alias in statement.names]
            for statement in ast.parse(source).body
            if isinstance(statement, ast.ImportFrom)
            and (statement.module or "").endswith("interfaces")
        ]
        return names

    before, after = text(version, path), patched(version, name)[path]
    assert imported(after) == sorted([*imported(before), PROTOCOL])


@pytest.mark.parametrize(("version", "name"), EACH)
def test_delegates_to_the_inner_model(version: str, name: str) -> None:
    path, cls = CLASSES[name]
    given = []
    inner = SimpleNamespace(
        set_aux_hidden_state_layers=given.append,
        get_eagle3_aux_hidden_state_layers=lambda: (2, 4, 6),
    )
    model = SimpleNamespace(model=inner, language_model=inner)
    names: dict[str, object] = {}
    for method in METHODS:
        node = method_in(patched(version, name)[path], cls, method)
        exec(compile(ast.Module([node], []), path, "exec"), names)
    assert names[METHODS[0]](model, (1, 2)) is None
    assert given == [(1, 2)]
    assert names[METHODS[1]](model) == (2, 4, 6)


def python_class(where: Sources, site: ClassSite) -> type:
    """A class of the same name with the same bases, made the same way."""
    bases = []
    for base in site.node.bases:
        name = ast.unparse(base)
        found = find_classes(where, site.path, name) if isinstance(base, ast.Name) else []
        bases.append(python_class(where, found[0]) if found else outer_class(name))
    key = (site.path, site.name)
    return made.setdefault(key, type(site.name, tuple(bases), {}))


def outer_class(name: str) -> type:
    return made.setdefault(("", name), type(name, (), {}))


made: dict[tuple[str, str], type] = {}


@pytest.mark.parametrize(("version", "name"), EACH)
def test_the_bases_have_a_method_resolution_order(version: str, name: str) -> None:
    made.clear()
    path, cls = CLASSES[name]
    where = with_texts(version, patched(version, name))
    (site,) = find_classes(where, path, cls)
    mro = [c.__name__ for c in python_class(where, site).__mro__]
    assert mro[0] == cls and PROTOCOL in mro


@pytest.mark.parametrize(("version", "name"), EACH)
def test_holds(version: str, name: str) -> None:
    assert_holds(version, name)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("class DeepseekV2ForCausalLM(nn.Module):\n",
         "class DeepseekV2ForCausalLM(nn.Module, SupportsEagle3):\n"),
        ("class DeepseekV2ForCausalLM(nn.Module,):\n",
         "class DeepseekV2ForCausalLM(nn.Module, SupportsEagle3):\n"),
        ("class DeepseekV2ForCausalLM(\n    nn.Module,\n    SupportsPP,\n):\n",
         "class DeepseekV2ForCausalLM(\n    nn.Module,\n    SupportsPP,\n    SupportsEagle3,\n"
         "):\n"),
        ("class DeepseekV2ForCausalLM(nn.Module, SupportsPP,\n                            A.B):\n",
         "class DeepseekV2ForCausalLM(nn.Module, SupportsPP,\n"
         "                            A.B, SupportsEagle3):\n"),
        ("class DeepseekV2ForCausalLM(nn.Module, Generic[T]):  # noqa: E501\n",
         "class DeepseekV2ForCausalLM(nn.Module, Generic[T], SupportsEagle3):  # noqa: E501\n"),
    ],
)  # fmt: skip
def test_keeps_the_layout_of_the_header(header: str, expected: str) -> None:
    assert expected in transform(with_header(header), EDIT)


@pytest.mark.parametrize(
    "header",
    [
        HEADER.replace("SupportsEagle\n", "*MIXINS\n"),
        "class DeepseekV2ForCausalLM(\n    nn.Module,\n    *MIXINS,\n):\n",
        HEADER.replace("(\n", "(  # a text model\n"),
        "class DeepseekV2ForCausalLM(  # a text model\n    nn.Module,\n    SupportsPP,\n):\n",
        "class DeepseekV2ForCausalLM(\n    nn.Module,\n    SupportsPP,\n    # no more\n):\n",
        HEADER.replace("nn.Module", "(nn.Module)"),
    ],
)
def test_loses_neither_stars_nor_comments_nor_parentheses(header: str) -> None:
    source = with_header(header)
    try:
        after = transform(source, EDIT)
    except RefusedError as error:
        assert "header" in error.what
        return
    assert_sound(source, after, EDIT)
    name = "DeepseekV2ForCausalLM"
    assert base_names(after, name) == [*base_names(source, name), PROTOCOL]
    assert after.count("#") == source.count("#")


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        ("class DeepseekV2ForCausalLM:\n", "has no bases"),
        ("class DeepseekV2ForCausalLM(nn.Module, metaclass=Meta):\n", "keywords"),
        (
            "class DeepseekV2ForCausalLM(\n    nn.Module,  # why\n    SupportsPP,\n):\n",
            "comments among",
        ),
        (HEADER.replace("DeepseekV2ForCausalLM", "DeepseekV2ForCausalLMs"), "0 top-level classes"),
        (f"class DeepseekV2ForCausalLM(nn.Module):\n    pass\n\n\n{HEADER}", "2 top-level classes"),
        (HEADER.replace("SupportsEagle\n", "SupportsEagle3\n"), "a part of SupportsEagle3"),
    ],
)
def test_refuses_another_header(header: str, reason: str) -> None:
    assert_refused(with_header(header), EDIT, reason)


SETTER = """
    def set_aux_hidden_state_layers(self, layers):
        self.model.aux_hidden_state_layers = layers

"""
GETTER = """
    def get_eagle3_aux_hidden_state_layers(self):
        return (2, 4, 6)

"""


@pytest.mark.parametrize("half", [SETTER, GETTER])
def test_refuses_half_an_interface(half: str) -> None:
    assert_refused(with_header(HEADER + half), EDIT, "a part of SupportsEagle3")


def test_adds_the_base_alone_where_both_methods_are_there() -> None:
    """As in Apertus, 0.10.2 to 0.17.1."""
    source = with_header(HEADER + SETTER + GETTER)
    after = transform(source, EDIT)
    assert_sound(source, after, EDIT)
    name = "DeepseekV2ForCausalLM"
    assert base_names(after, name) == [*base_names(source, name), PROTOCOL]
    old, new = (map(ast.dump, class_in(s, name).body) for s in (source, after))
    assert list(new) == list(old)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (IMPORT, "from .interfaces import *\n", None),
        (IMPORT, "from . import interfaces\n", None),
        (IMPORT, IMPORT + "from .interfaces import SupportsMRoPE\n", "2 imports"),
        (IMPORT, IMPORT.replace("\n", "  # noqa\n"), None),
        (IMPORT, IMPORT.replace("SupportsPP", "SupportsPP as PP"), "`as` names"),
        (IMPORT, "from .interfaces import (\n    SupportsEagle,  # why\n    SupportsPP,\n)\n",
         "comments"),
        (IMPORT, IMPORT.replace("\n", "; import os\n"), None),
    ],
)  # fmt: skip
def test_refuses_an_import_it_cannot_extend(old: str, new: str, reason: str | None) -> None:
    source = swap(SOURCE, old, new)
    if reason is None:
        assert_sound(source, transform(source, EDIT), EDIT)
    else:
        assert_refused(source, EDIT, reason)


def test_a_class_that_inherits_forward_gets_the_methods_at_its_end() -> None:
    source = SOURCE.replace("    def forward(", "    def run(")
    after = transform(source, EDIT)
    assert_sound(source, after, EDIT)
    methods = [getattr(s, "name", None) for s in class_in(after, "DeepseekV2ForCausalLM").body]
    assert tuple(methods[-2:]) == METHODS


def test_refuses_a_class_with_two_forwards() -> None:
    source = swap(SOURCE, FORWARD, f"    def forward(self): ...\n\n{FORWARD}")
    assert_refused(source, EDIT, "2 methods forward")


def test_changes_nothing_but_the_import_the_header_and_the_methods() -> None:
    gone, come = changes(text("0.17.1", DEEPSEEK_FILE), patched("0.17.1", CAUSAL)[DEEPSEEK_FILE])
    assert gone == [
        "from .interfaces import MixtureOfExperts, SupportsEagle, SupportsLoRA, SupportsPP",
        "nn.Module, SupportsPP, DeepseekV2MixtureOfExperts, SupportsLoRA, SupportsEagle",
    ]
    assert come[-4:] == [
        "def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:",
        "self.model.set_aux_hidden_state_layers(layers)",
        "def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:",
        "return self.model.get_eagle3_aux_hidden_state_layers()",
    ]
    assert len(come) == 7 + 6 + 4


def test_both_classes_of_the_registry_inherit_it() -> None:
    where = with_texts("0.17.1", patched("0.17.1"))
    for name in ("DeepseekV3ForCausalLM", "GlmMoeDsaForCausalLM"):
        made.clear()
        (site,) = find_classes(where, DEEPSEEK_FILE, name)
        assert PROTOCOL in [c.__name__ for c in python_class(where, site).__mro__]
