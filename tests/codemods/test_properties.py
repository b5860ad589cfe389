"""Codemods on other texts of a real program hold or refuse; they never mangle."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from real import (
    DEEPSEEK,
    KIMI,
    cut,
    edits,
    finding,
    outside,
    patched,
    text,
    with_texts,
)

from codemods.stream import Run, expected
from codemods.variants import (
    FORMATS,
    commented,
    damaged,
    formatted,
    interesting,
    swapped_neighbours,
    trimmed,
)
from vllm_eagle3_patches import codemods
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import State

# Edit -> the release whose file is taken, what stays in it, the target, and a pattern of the
# lines that matter.
CASES = {
    "model-type": ("0.17.1", ["SpeculativeConfig"], DEEPSEEK, "_supported|afmoe|verify_equal"),
    "image-token": ("0.17.1", ["SpecDecodeBaseProposer"], KIMI, "image_token|get_model_name"),
    "weight-sharing": ("0.15.1", ["SpecDecodeBaseProposer"], KIMI, "target_language|^import"),
    "interface": (
        "0.17.1",
        ["DeepseekV2Model", "DeepseekV2MixtureOfExperts", "DeepseekV2ForCausalLM", DEEPSEEK],
        DEEPSEEK,
        r"^class |interfaces|^\)|Supports|def forward",
    ),
    "interface-wrapper": ("0.15.1", [KIMI], KIMI, r"^class |interfaces|^\)|Supports|def forward"),
    "aux-capture": (
        "0.17.1",
        ["DeepseekV2Model", "DeepseekV2MixtureOfExperts", "DeepseekV2ForCausalLM", DEEPSEEK],
        DEEPSEEK,
        r"^class |def forward|layer|is_last_rank|IntermediateT|norm\(|return hidden|pt_during",
    ),
}
METHODS = {"__init__", "forward", "load_model", "_verify_args"}
COMMENTS = ("above", "left", "blank", "behind")
DAMAGES = ("lost", "twice", "swapped")

each_edit = pytest.mark.parametrize("name", CASES)
quick = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=25,
    suppress_health_check=list(HealthCheck),
)


@cache
def original(name: str) -> str:
    version, kept, _, _ = CASES[name]
    return trimmed(cut(text(version, edits(version)[name].path), *kept), METHODS)


def transform(name: str, source: str) -> str:
    edit = edits(CASES[name][0])[name]
    return codemods.apply(source, [edit], edit.path)


def state_after(name: str, after: str) -> State:
    """The state of the gate with this text in place, and all other edits made."""
    version, _, architecture, _ = CASES[name]
    edit = edits(version)[name]
    others = {n for n, e in edits(version).items() if e.path != edit.path}
    texts = {**patched(version, *others), edit.path: after}
    return finding(with_texts(version, texts), architecture, edit.gate).state


def assert_sound(name: str, source: str, after: str) -> None:
    edit = edits(CASES[name][0])[name]
    compile(after, edit.path, "exec", dont_inherit=True)
    assert after != source
    assert transform(name, after) == after
    assert outside(after, edit.scopes) == outside(source, edit.scopes)
    assert after.count("# note") == source.count("# note")
    assert state_after(name, after) is State.NATIVE


@st.composite
def variants(draw: st.DrawFn, name: str) -> str:
    """The program in another layout, its definitions in another order, with comments."""
    source = formatted(original(name), draw(st.sampled_from(FORMATS)))
    for choice in draw(st.lists(st.integers(0, 99), max_size=3)):
        source = swapped_neighbours(source, choice)
    for _ in range(draw(st.integers(0, 4))):
        number = draw(st.sampled_from(interesting(source, CASES[name][3])))
        source = commented(source, number, draw(st.sampled_from(COMMENTS)))
    return source


@st.composite
def damaged_sources(draw: st.DrawFn, name: str) -> str:
    source = original(name)
    near = st.sampled_from(interesting(source, CASES[name][3]))
    anywhere = st.integers(0, source.count("\n") - 1)
    for _ in range(draw(st.integers(1, 2))):
        number = draw(st.one_of(near, near, near, anywhere))
        source = damaged(source, number, draw(st.sampled_from(DAMAGES)))
    return source


@each_edit
@pytest.mark.parametrize("how", FORMATS)
def test_a_layout_alone_is_no_reason_to_refuse(name: str, how: str) -> None:
    source = formatted(original(name), how)
    assert_sound(name, source, transform(name, source))


@each_edit
def test_variants_hold_or_are_refused(name: str) -> None:
    @quick
    @given(variants(name))
    def check(source: str) -> None:
        compile(source, name, "exec", dont_inherit=True)
        try:
            after = transform(name, source)
        except RefusedError as error:
            event(error.what)
            return
        event("holds")
        assert_sound(name, source, after)

    check()


@each_edit
def test_damaged_sources_hold_or_are_refused(name: str) -> None:
    edit = edits(CASES[name][0])[name]

    @quick
    @given(damaged_sources(name))
    def check(source: str) -> None:
        try:
            after = transform(name, source)
        except RefusedError as error:
            event(error.what)
            return
        try:
            compile(source, edit.path, "exec", dont_inherit=True)
        except SyntaxError:  # a proof refuses it
            return
        compile(after, edit.path, "exec", dont_inherit=True)
        assert transform(name, after) == after
        assert outside(after, edit.scopes) == outside(source, edit.scopes)
        try:
            assert state_after(name, after) is not State.CLOSED
        except RefusedError as error:  # the target is not recognised any more
            event(error.what)

    check()


@quick
@given(damaged_sources("aux-capture"), st.sets(st.integers(0, 7), min_size=1))
def test_a_damaged_decoder_behaves_as_before_and_captures_its_streams(
    source: str, ids: set[int]
) -> None:
    try:
        after = transform("aux-capture", source)
        before = Run(source)
    except (RefusedError, SyntaxError, ValueError):
        assume(False)
        raise
    run = Run(after)
    assert (run.result, run.calls) == (before.result, before.calls)
    if isinstance(before.result, int) and set(range(8)) <= before.streams.keys():
        captured = Run(after, tuple(ids))
        assert captured.result == (before.result, expected(before, ids))
