import ast

import libcst as cst
import pytest

from codemods.behaviour import refused
from vllm_eagle3_patches.codemods import apply, parse
from vllm_eagle3_patches.codemods.syntax import (
    body_of,
    build,
    code,
    edit_class,
    edit_method,
    insert_methods,
    matches,
    method_index,
    names_in,
    plain,
    tree,
)

SOURCE = """\
class A:
    x = 1

    # about f
    def f(self):
        return  self.x # odd

    @property
    def g(self): return 2


def A_like(): ...
"""


def the_class(module: cst.Module) -> cst.ClassDef:
    assert isinstance(module.body[0], cst.ClassDef)
    return module.body[0]


def renamed(cls: cst.ClassDef) -> cst.ClassDef:
    return cls.with_changes(name=cst.Name("B"))


def test_plain_has_neither_comments_nor_layout() -> None:
    module = cst.parse_module("f( a,\n   b ) # why\n")
    assert plain(module.body[0]) == "f(a, b)"


def test_matches_whatever_the_layout() -> None:
    statement = cst.parse_module("a , b=f( a,\n  b ) # why\n").body[0]
    assert matches(statement, "a, b = f(a, b)")
    assert not matches(statement, "a, b = f(b, a)")
    assert not matches(cst.Name("a"), "a")


def test_tree_of_an_indented_statement() -> None:
    method = body_of(the_class(cst.parse_module(SOURCE)))[1]
    assert isinstance(tree(method), ast.FunctionDef)
    assert names_in(method) == {"self"}


@pytest.mark.parametrize(("indent", "end"), [("    ", "\n"), ("\t", "\n"), ("  ", "\r\n")])
def test_build_takes_the_conventions_of_the_module(indent: str, end: str) -> None:
    module = cst.parse_module(f"if x:{end}{indent}y{end}")
    built = build("\n    if a:\n        b\n    c\n", module)
    text = module.with_changes(body=built).code
    assert text == f"if a:{end}{indent}b{end}c{end}"


def test_edit_class_noop_gives_the_module_itself() -> None:
    module = cst.parse_module(SOURCE)
    assert edit_class(module, "A", lambda cls: cls) is module


def test_edit_class_leaves_the_rest_as_it_is() -> None:
    module = cst.parse_module(SOURCE)
    assert edit_class(module, "A", renamed).code == SOURCE.replace("class A", "class B")


@pytest.mark.parametrize(
    ("source", "count"), [("", 0), ("class B: ...\n", 0), (SOURCE + SOURCE, 2), ("A = 1\n", 0)]
)
def test_edit_class_refuses_all_but_one(source: str, count: int) -> None:
    with refused(f"{count} top-level classes A"):
        edit_class(cst.parse_module(source), "A", renamed)


def test_a_class_inside_another_is_not_top_level() -> None:
    with refused("0 top-level classes A"):
        edit_class(cst.parse_module("class B:\n    class A: ...\n"), "A", renamed)


def test_edit_method() -> None:
    cls = the_class(cst.parse_module(SOURCE))
    assert edit_method(cls, "f", lambda method: method) is cls
    changed = edit_method(cls, "f", lambda method: method.with_changes(name=cst.Name("h")))
    assert code(changed) == code(cls).replace("def f", "def h")
    with refused("no method h"):
        edit_method(cls, "h", lambda method: method)


def test_method_index_refuses_two() -> None:
    cls = the_class(cst.parse_module("class A:\n    def f(self): ...\n    def f(self): ...\n"))
    with refused("2 methods f"):
        method_index(cls, "f")


def test_insert_methods_goes_above_comments_and_decorators() -> None:
    module = cst.parse_module(SOURCE)
    for before, above in (("f", "\n    # about f"), ("g", "\n    @property")):
        changed = insert_methods(the_class(module), before, "def new(self):\n    ...\n", module)
        assert f"\n    def new(self):\n        ...\n{above}" in code(changed)


def test_insert_methods_at_the_end_where_there_is_no_such_method() -> None:
    module = cst.parse_module(SOURCE)
    changed = insert_methods(the_class(module), "h", "def new(self):\n    ...\n", module)
    assert code(changed).endswith("def g(self): return 2\n\n    def new(self):\n        ...\n")


def test_body_of_refuses_a_block_on_one_line() -> None:
    with refused("a block on one line"):
        body_of(cst.parse_module("class A: x = 1\n").body[0])


@pytest.mark.parametrize("source", ["class A(\n", "x = = 1\n", "def f():\nreturn 1\n"])
def test_parse_refuses_what_is_not_python(source: str) -> None:
    with refused("not valid Python"):
        parse(source, "vllm/a.py")


def test_apply_refuses_what_is_nested_too_deeply() -> None:
    with refused("nested too deeply"):
        apply(f"x = {'1 + ' * 600}1\n", [], "vllm/a.py")
