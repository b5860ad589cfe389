"""What holds of every gate."""

import pytest
from real import CLOSED, DEEPSEEK, DEEPSEEK_V32, KIMI, NATIVE, WITH_KIMI, WITH_V32, sources, target

from vllm_eagle3_patches import plan
from vllm_eagle3_patches.gates import GATES, NAMES
from vllm_eagle3_patches.gates.base import State

N, C, A = State.NATIVE, State.CLOSED, State.NOT_APPLICABLE


def states(version: str, architecture: str) -> list[State]:
    return [f.state for f in plan.findings(sources(version), target(version, architecture))]


def test_the_order_is_that_of_a_start_up() -> None:
    assert NAMES == (
        "model-type", "drafter", "image-token", "weight-sharing", "interface", "aux-capture"
    )  # fmt: skip


@pytest.mark.parametrize("version", CLOSED)
def test_deepseek_before_it_was_native(version: str) -> None:
    assert states(version, DEEPSEEK) == [C, N, A, N, C, C]
    assert states(version, "DeepseekV2ForCausalLM") == [C, N, A, N, C, C]


@pytest.mark.parametrize("version", WITH_V32)
def test_deepseek_v32_before_it_was_native(version: str) -> None:
    assert states(version, DEEPSEEK_V32) == [C, N, A, N, C, C]


@pytest.mark.parametrize("version", WITH_KIMI)
def test_kimi_before_it_was_native(version: str) -> None:
    shared = C if version.startswith("0.15.") else N
    assert states(version, KIMI) == [C, N, C, shared, C, C]


@pytest.mark.parametrize("version", NATIVE)
def test_native_releases(version: str) -> None:
    assert states(version, KIMI) == [N, N, N, N, N, N]
    assert states(version, DEEPSEEK) == [N, N, A, N, N, N]
    assert states(version, DEEPSEEK_V32) == [N, N, A, N, N, N]


@pytest.mark.parametrize("version", [*CLOSED, *NATIVE])
def test_a_finding_names_its_gate_and_a_line_in_an_installed_file(version: str) -> None:
    for gate in GATES:
        finding = gate.inspect(sources(version), target(version, DEEPSEEK))
        assert finding.gate == gate.NAME
        assert finding.detail
        if finding.state is not A:
            assert finding.file is not None and finding.line is not None
            lines = sources(version).data(finding.file).count(b"\n")
            assert 1 <= finding.line <= lines


@pytest.mark.parametrize("version", NATIVE)
def test_a_native_gate_names_no_edit_that_would_change_anything(version: str) -> None:
    assert plan.edits_for(sources(version), target(version, KIMI)) == []


@pytest.mark.parametrize(
    ("state", "passes"),
    [(N, True), (State.OPEN, True), (A, True), (C, False), (State.REFUSED, False)],
)
def test_which_states_pass(state: State, passes: bool) -> None:
    assert state.passes is passes
