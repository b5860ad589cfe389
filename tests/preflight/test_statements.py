"""The interpreter against Python itself, and where it has to say that it does not know."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_eagle3_patches.preflight.statements import Outcome, run
from vllm_eagle3_patches.preflight.values import MISSING, UNKNOWN, Bag, Made


def outcome(body: str, **arguments: object) -> Outcome:
    source = f"def f({', '.join(arguments)}):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    function = ast.parse(source).body[0]
    assert isinstance(function, ast.FunctionDef)
    return run(function, arguments)


def value(body: str, **arguments: object) -> object:
    return outcome(body, **arguments).value


NUMBERS = st.one_of(st.sampled_from(["a", "b"]), st.integers(-3, 9).map(str))
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "//", "%"]), inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["<", "<=", "==", "!="]), inner),
        st.builds("({} {} {})".format, inner, st.sampled_from(["and", "or"]), inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("({} in [{}, {}])".format, inner, inner, inner),
        st.builds("(not {})".format, inner),
        st.builds("len([{}, {}])".format, inner, inner),
        st.builds("sum_([{} for x in range(3) if x])".format, inner),
        st.builds("any(x > {} for x in ({}, 1))".format, inner, inner),
    ),
    max_leaves=12,
)


@given(EXPRESSIONS, st.integers(-5, 5), st.integers(-5, 5))
def test_same_as_python(expression: str, a: int, b: int) -> None:
    expression = expression.replace("sum_", "len")
    try:
        wanted: Any = eval(expression, {"a": a, "b": b})
    except ZeroDivisionError:
        return
    found = value(f"return {expression}", a=a, b=b)
    assert found == wanted and type(found) is type(wanted)


@given(EXPRESSIONS, st.integers(-5, 5), st.integers(-5, 5))
def test_unknown_is_never_wrong(expression: str, a: int, b: int) -> None:
    """With `b` unknown the answer is that of every `b`, or UNKNOWN."""
    expression = expression.replace("sum_", "len")
    try:
        wanted: Any = eval(expression, {"a": a, "b": b})
    except ZeroDivisionError:
        return
    found = value(f"return {expression}", a=a, b=UNKNOWN)
    if found is not UNKNOWN and not isinstance(found, list):
        assert bool(found) == bool(wanted)


@given(st.lists(st.integers(0, 3), max_size=5), st.integers(0, 3), st.booleans())
def test_loops_and_branches(items: list[int], stop: int, known: bool) -> None:
    body = """
        total = 0
        for item in items:
            if item == stop:
                break
            if item == 0:
                continue
            total += item
        else:
            total = -total
        if flag:
            return total
        return [total, stop]
    """
    total = 0
    for item in items:
        if item == stop:
            break
        total += item
    else:
        total = -total
    found = value(body, items=items, stop=stop, flag=known)
    assert found == (total if known else [total, stop])
    assert value(body, items=items, stop=stop, flag=UNKNOWN) is UNKNOWN


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ('getattr(config, "a", 5)', 1),
        ('getattr(config, "b", 5)', 5),
        ('getattr(config, "b")', UNKNOWN),
        ('getattr(config, "maybe", 5)', UNKNOWN),
        ('hasattr(config, "a")', True),
        ('hasattr(config, "b")', False),
        ('hasattr(config, "maybe")', UNKNOWN),
        ("config.nested.get('x')", None),
        ("config.nested['k'] + 1", 3),
        ("config.nested['x']", UNKNOWN),
        ("isinstance(config.nested, dict)", True),
        ("isinstance(config.nested, (list, tuple))", False),
        ("isinstance(config, dict)", False),
        ("isinstance(config.nested, Other)", UNKNOWN),
        ("'Eagle3' + config.name if config.name.startswith('L') else 0", "Eagle3Llama"),
        ("f'{config.name}!{unseen()}'", "Llama!…"),
        ("(x := config.a) + x", 2),
        ("config.a < unseen()", UNKNOWN),
        ("unseen() is None", False),
        ("[*config.list, 3]", [1, 2, 3]),
        ("tuple(sorted({3, 1}))", (1, 3)),
        ("lambda: 1", UNKNOWN),
        ("-config.a", -1),
        ("{'k': config.a}", {"k": 1}),
    ],
)
def test_config_code(expression: str, wanted: object) -> None:
    config = Bag(
        {"a": 1, "nested": {"k": 2}, "name": "Llama", "list": [1, 2]},
        closed=True,
        unsure={"maybe"},
    )
    assert value(f"return {expression}", config=config) == wanted


def test_constructor_is_kept_with_its_arguments() -> None:
    made = value("return nn.Linear(3 * size, out_features=size)", size=7)
    assert isinstance(made, Made)
    assert (made.name, made.argument(0, "in_features"), made.argument(1, "out_features")) == (
        "nn.Linear",
        21,
        7,
    )
    assert made.argument(2, "bias") is MISSING


def test_attributes_and_update() -> None:
    config = Bag({"model_type": "deepseek_v3"})
    outcome(
        """
        if config.model_type in ("deepseek_v3", "deepseek_v32"):
            config.model_type = "deepseek_mtp"
        if config.model_type == "deepseek_mtp":
            config.update({"architectures": ["DeepSeekMTPModel"]})
        """,
        config=config,
    )
    assert config.attributes == {
        "model_type": "deepseek_mtp",
        "architectures": ["DeepSeekMTPModel"],
    }


def test_raises() -> None:
    body = """
        known = {"llama": 1}
        if kind not in known:
            raise ValueError(f"Unsupported model_type {kind}")
        return known[kind]
    """
    assert outcome(body, kind="llama") == Outcome(1)
    assert outcome(body, kind="gemma").raised == "ValueError: Unsupported model_type gemma"
    assert outcome(body, kind=UNKNOWN) == Outcome(UNKNOWN)


def test_unknown_condition_keeps_what_both_ways_agree_on() -> None:
    config = Bag({"same": 1, "other": 1})
    body = """
        if unseen():
            x = 1
            config.same = 2
            config.other = 3
        else:
            x = 1
            config.same = 2
        return [x, config.same, config.other]
    """
    assert value(body, config=config) == [1, 2, UNKNOWN]


def test_defaults_keywords_and_with() -> None:
    function = ast.parse(
        "def f(a, b=2, *, c=3, **rest):\n"
        "    with unseen():\n"
        "        rest['d'] = a\n"
        "    first, (second, third) = a, (b, c)\n"
        "    return [first, second, third, rest]\n"
    ).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert run(function, {"a": 1}).value == [1, 2, 3, {"d": 1}]
