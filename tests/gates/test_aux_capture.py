import pytest
from real import (
    CLOSED,
    DEEPSEEK,
    DEEPSEEK_FILE,
    DEEPSEEK_V32,
    KIMI,
    NATIVE,
    WITH_KIMI,
    finding,
    method_in,
    patched,
    sources,
    swap,
    target,
    text,
    with_texts,
)

from gates.places import line
from vllm_eagle3_patches import plan
from vllm_eagle3_patches.gates import aux_capture
from vllm_eagle3_patches.gates.base import Finding, State
from vllm_eagle3_patches.target import Request, find

NAME = aux_capture.NAME
CHECK = """\
            if idx in self.aux_hidden_state_layers:
                aux_hidden_states.append(hidden_states + residual)
"""
CALL = """\
            hidden_states, residual = layer(
                positions, hidden_states, residual, llama_4_scaling
            )
"""
OUR_CHECK = """\
            if idx in self.aux_hidden_state_layers:
                aux_hidden_states.append(
                    hidden_states.clone()
                    if residual is None
                    else hidden_states + residual
                )
"""


def findings_of(version: str, name: str) -> list[Finding]:
    where = sources(version)
    return plan.findings(where, find(where, Request(name, None), version))


UPSTREAM = "0.18.0", text("0.18.0", DEEPSEEK_FILE)
OURS = "0.17.1", patched("0.17.1", NAME)[DEEPSEEK_FILE]


def after(version: str, source: str, architecture: str = DEEPSEEK) -> Finding:
    return finding(with_texts(version, {DEEPSEEK_FILE: source}), architecture, NAME)


@pytest.mark.parametrize("version", CLOSED)
def test_closed_at_forward(version: str) -> None:
    found = finding(sources(version), DEEPSEEK, NAME)
    assert (found.state, found.file) == (State.CLOSED, DEEPSEEK_FILE)
    assert line(version, found) == "def forward("
    assert found.detail == "DeepseekV2Model.forward returns no aux hidden states"


@pytest.mark.parametrize("version", NATIVE)
@pytest.mark.parametrize("architecture", [DEEPSEEK, DEEPSEEK_V32, KIMI])
def test_native_at_forward(version: str, architecture: str) -> None:
    found = finding(sources(version), architecture, NAME)
    assert found.state is State.NATIVE
    assert line(version, found).startswith("def forward(")


@pytest.mark.parametrize("version", CLOSED)
def test_native_after_the_edit(version: str) -> None:
    assert after(version, patched(version, NAME)[DEEPSEEK_FILE]).state is State.NATIVE


@pytest.mark.parametrize("version", WITH_KIMI)
def test_kimi_and_deepseek_share_the_edit(version: str) -> None:
    edits = [aux_capture.edits(sources(version), target(version, a)) for a in (KIMI, DEEPSEEK)]
    assert edits[0] == edits[1]
    assert [(e.path, e.scopes) for e in edits[0]] == [(DEEPSEEK_FILE, ("DeepseekV2Model",))]


@pytest.mark.parametrize(
    ("version", "source", "old", "new"),
    [
        (*UPSTREAM, CHECK + CALL, CHECK.replace(" + residual", "") + CALL),
        (*OURS, OUR_CHECK, OUR_CHECK.replace(" + residual", "")),
        (*OURS, OUR_CHECK, CHECK.replace(" + residual", "")),
        (*OURS, "start=self.start_layer,", "start=self.start_layer + 1,"),
        (*UPSTREAM, CHECK + CALL, CALL + CHECK),
        (*OURS, OUR_CHECK + CALL, CALL + OUR_CHECK),
        (*OURS, OUR_CHECK, OUR_CHECK.replace("if idx in", "if idx + 1 in")),
        (*OURS, OUR_CHECK, OUR_CHECK.replace("if idx in", "if self.start_layer + idx in")),
        (*OURS, OUR_CHECK, OUR_CHECK.replace("is None", "is not None")),
        (*OURS, CALL, CALL + CALL),
        (*OURS, OUR_CHECK, OUR_CHECK + OUR_CHECK),
    ],
    ids=[
        "no residual (upstream's)", "no residual (ours)", "no residual at all",
        "off by one (ours)",
        "after the call (upstream's)", "after the call (ours)",
        "shifted ids", "the first layer added twice", "the wrong way round",
        "two calls", "captured twice",
    ],
)  # fmt: skip
def test_refused_where_the_capture_is_wrong(version: str, source: str, old: str, new: str) -> None:
    found = after(version, swap(source, old, new))
    assert (found.state, found.file) == (State.REFUSED, DEEPSEEK_FILE)
    assert "captures aux hidden states in an unknown form" in found.detail


def test_upstreams_word_is_taken_for_state_of_a_form_that_is_not_read() -> None:
    """DeepSeek-V4 has several streams; its class claims the interface and captures by itself."""
    (found,) = [
        f for f in findings_of("0.32.0", "DeepseekV4ForCausalLM") if f.gate == "aux-capture"
    ]
    assert found.state is State.NATIVE
    assert "captures in a form of its own, not read: the layer's result goes to" in found.detail


def test_a_claiming_class_that_counts_its_layers_from_elsewhere_is_refused() -> None:
    source = swap(UPSTREAM[1], "start=self.start_layer,", "start=self.start_layer + 1,")
    found = after(UPSTREAM[0], source)
    assert found.state is State.REFUSED
    assert "captures aux hidden states in an unknown form" in found.detail


@pytest.mark.parametrize("id_", ["idx", "self.start_layer + idx", "idx + self.start_layer"])
def test_an_index_that_counts_the_stages_own_layers(id_: str) -> None:
    """As in upstream's Llama to 0.17.1, where aux hidden states do not cross stages anyway; the
    first layer's number may be added to it."""
    source = swap(OURS[1], "            start=self.start_layer,\n", "")
    source = swap(source, "if idx in self.", f"if {id_} in self.")
    assert after(OURS[0], source).state is State.NATIVE


@pytest.mark.parametrize(
    ("version", "source", "old", "new"),
    [
        (*OURS, OUR_CHECK, ""),
        (*OURS, "            return hidden_states, aux_hidden_states\n", "            pass\n"),
        (*UPSTREAM, "            return hidden_states, aux_hidden_states\n", "            pass\n"),
        (*OURS, "    aux_hidden_state_layers: tuple[int, ...] = ()\n", ""),
        (*UPSTREAM, "        self.aux_hidden_state_layers = tuple[int, ...]()\n", ""),
    ],
    ids=["no capture", "no return (ours)", "no return (upstream's)", "no attribute (ours)",
         "no attribute (upstream's)"],
)  # fmt: skip
def test_refused_where_a_half_was_patched_by_hand(
    version: str, source: str, old: str, new: str
) -> None:
    assert after(version, swap(source, old, new)).state is State.REFUSED


def test_refused_where_the_class_sets_layers_but_forward_ignores_them() -> None:
    source = swap(
        text("0.17.1", DEEPSEEK_FILE),
        "    fall_back_to_pt_during_load = False\n",
        "    fall_back_to_pt_during_load = False\n    aux_hidden_state_layers = ()\n",
    )
    assert after("0.17.1", source).state in (State.CLOSED, State.REFUSED)


def test_captures_says_none_without_a_trace_of_capturing() -> None:
    forward = method_in(text("0.17.1", DEEPSEEK_FILE), "DeepseekV2Model", "forward")
    assert aux_capture.captures(forward) is None
    forward = method_in(OURS[1], "DeepseekV2Model", "forward")
    assert aux_capture.captures(forward) is True


def test_every_platforms_decoder_must_capture() -> None:
    """DeepSeek-V3.2 of 0.30.0 has a decoder for each of two platforms; without upstream's capture
    neither is one that this tool would dare to open: their layers gather the residual first."""
    paths = {s.decoder.path for s in target("0.30.0", DEEPSEEK_V32).structures}
    assert len(paths) > 1
    for path in paths:
        source = text("0.30.0", path).replace("aux_hidden", "other_hidden")
        found = finding(with_texts("0.30.0", {path: source}), DEEPSEEK_V32, NAME)
        assert (found.state, found.file) == (State.REFUSED, path)
        assert "uses its residual in a way that is not known" in found.detail
