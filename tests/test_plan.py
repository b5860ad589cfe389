import ast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real import (
    CLOSED,
    CONFIG,
    DEEPSEEK,
    DEEPSEEK_FILE,
    DEEPSEEK_V32,
    KIMI,
    LOADER,
    NATIVE,
    WITH_KIMI,
    architecture,
    changes,
    class_in,
    find,
    patched,
    sources,
    swap,
    text,
    with_texts,
)

from vllm_eagle3_patches import plan
from vllm_eagle3_patches import target as targets
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates import NAMES
from vllm_eagle3_patches.gates.base import State
from vllm_eagle3_patches.plan import Plan
from vllm_eagle3_patches.sources import BOM, Sources
from vllm_eagle3_patches.target import Request


def changed(version: str, *paths: str) -> Sources:
    """The release with a harmless line at the end of these files: no series fits them."""
    return with_texts(version, {path: text(version, path) + "# fork\n" for path in paths})


def states(where: Sources, name: str) -> dict[str, State]:
    return {f.gate: f.state for f in plan.findings(where, find(where, name))}


def made(where: Sources, *names: str, gates: tuple[str, ...] = NAMES) -> Plan:
    return plan.make(where, [find(where, name) for name in names], "", gates)


@pytest.mark.parametrize("version", CLOSED)
def test_a_release_is_patched_by_a_series_and_every_gate_passes(version: str) -> None:
    name = architecture(version)
    result = made(sources(version), name)
    assert result.source == "series"
    after = states(sources(version).with_overlay(result.after), name)
    assert all(state.passes for state in after.values())


def test_other_bytes_go_through_the_codemods() -> None:
    result = made(changed("0.17.1", DEEPSEEK_FILE), KIMI)
    assert result.source == "codemod"
    pinned = made(sources("0.17.1"), KIMI)
    assert result.after == {
        path: data + b"# fork\n" * (path == DEEPSEEK_FILE) for path, data in pinned.after.items()
    }


def test_a_series_for_another_model_type_is_not_taken() -> None:
    """The edits have the names and files of the pinned ones, and add another type to the list."""
    wanted = targets.find(sources("0.17.1"), Request(DEEPSEEK, "my_deepseek"), "")
    result = plan.make(sources("0.17.1"), [wanted], "0.17.1")
    assert result.source == "codemod"
    assert b'"my_deepseek",' in result.after[CONFIG]
    pinned = made(sources("0.17.1"), DEEPSEEK)
    assert pinned.source == "series"
    assert result.after[DEEPSEEK_FILE] == pinned.after[DEEPSEEK_FILE]


def test_a_byte_order_mark_and_windows_line_ends_are_kept() -> None:
    data = BOM + sources("0.17.1").data(DEEPSEEK_FILE).replace(b"\n", b"\r\n")
    where = sources("0.17.1").with_overlay({DEEPSEEK_FILE: data})
    after = made(where, DEEPSEEK).after[DEEPSEEK_FILE]
    expected = made(sources("0.17.1"), DEEPSEEK).after[DEEPSEEK_FILE]
    assert after == BOM + expected.replace(b"\n", b"\r\n")


@pytest.mark.parametrize("version", NATIVE)
@pytest.mark.parametrize("name", [KIMI, DEEPSEEK, DEEPSEEK_V32])
def test_nothing_to_do_where_it_is_native(version: str, name: str) -> None:
    assert made(sources(version), name) == Plan("none", (), {})


@pytest.mark.parametrize("version", WITH_KIMI)
def test_two_targets_together_are_the_edits_of_both_once(version: str) -> None:
    both = made(sources(version), KIMI, DEEPSEEK)
    assert made(sources(version), DEEPSEEK, KIMI) == both
    assert len(set(both.edits)) == len(both.edits)
    assert made(sources(version), KIMI).after == both.after
    assert set(made(sources(version), DEEPSEEK).edits) <= set(both.edits)


def test_edits_are_in_the_order_of_the_gates() -> None:
    order = [NAMES.index(edit.gate) for edit in made(sources("0.15.1"), KIMI).edits]
    assert order == sorted(order)


@pytest.mark.parametrize("gate", ["model-type", "image-token", "interface", "aux-capture"])
def test_one_gate_alone(gate: str) -> None:
    before = states(sources("0.17.1"), KIMI)
    result = made(sources("0.17.1"), KIMI, gates=(gate,))
    after = states(sources("0.17.1").with_overlay(result.after), KIMI)
    assert after == {**before, gate: State.NATIVE}


def test_no_gate_at_all() -> None:
    assert made(sources("0.17.1"), KIMI, gates=()) == Plan("none", (), {})


def test_a_refused_gate_refuses_all_and_names_the_place() -> None:
    source = swap(text("0.17.1", CONFIG), '            "afmoe",', "            AFMOE,")
    with pytest.raises(RefusedError, match="gate model-type is refused") as raised:
        made(with_texts("0.17.1", {CONFIG: source}), KIMI)
    assert str(raised.value.where).startswith(f"{CONFIG}:")


def test_a_file_that_is_not_python_is_refused() -> None:
    where = with_texts("0.17.1", {LOADER: text("0.17.1", LOADER)[:-900] + "(\n"})
    assert states(where, KIMI)["image-token"] is State.REFUSED
    with pytest.raises(RefusedError):
        made(where, KIMI)


@pytest.mark.parametrize(
    ("path", "before"),
    [
        (LOADER, "        if supports_multimodal(target_model):\n"),
        (DEEPSEEK_FILE, "        # Compute llama 4 scaling once per forward pass if enabled\n"),
    ],
)
def test_a_file_that_is_nested_too_deeply_is_refused(path: str, before: str) -> None:
    deep = f"        deep = {'1 + ' * 1500}1\n"
    where = with_texts("0.17.1", {path: swap(text("0.17.1", path), before, deep + before)})
    with pytest.raises(RefusedError):
        made(where, KIMI)


def test_findings_of_a_gate_that_cannot_look_are_refused() -> None:
    source = text("0.17.1", LOADER).replace("def load_model(", "def load(")
    found = states(with_texts("0.17.1", {LOADER: source}), KIMI)
    assert found["drafter"] is found["image-token"] is State.REFUSED
    assert found["interface"] is State.CLOSED


# `check` must not promise what `apply` refuses


def verified(where: Sources, name: str) -> dict[str, State]:
    wanted = find(where, name)
    edits = plan.edits_for(where, wanted)
    return {f.gate: f.state for f in plan.verified(where, where, wanted, edits, "")}


@pytest.mark.parametrize("version", CLOSED)
def test_verified_says_closed_where_a_series_fits(version: str) -> None:
    name = architecture(version)
    assert verified(sources(version), name) == states(sources(version), name)


def test_verified_says_closed_where_the_codemods_can() -> None:
    where = changed("0.17.1", DEEPSEEK_FILE, CONFIG)
    assert verified(where, KIMI) == states(where, KIMI)


@pytest.mark.parametrize(
    ("path", "old", "new", "gate"),
    [
        (CONFIG, '            "afmoe",', '            "afmoe",  # why', "model-type"),
        (DEEPSEEK_FILE, "        hidden_states, _ = self.norm(hidden_states, residual)\n",
         "        hidden_states, _ = self.norm(hidden_states, residual)\n"
         "        if residual is None:\n            return residual\n", "aux-capture"),
        (DEEPSEEK_FILE, "class DeepseekV2ForCausalLM(\n    nn.Module,",
         "class DeepseekV2ForCausalLM(\n    nn.Module,  # why\n   ", "interface"),
        (DEEPSEEK_FILE, "SupportsLoRA, SupportsEagle\n):", "SupportsLoRA, SupportsEagle3\n):",
         "interface"),
    ],
)  # fmt: skip
def test_verified_says_refused_where_they_cannot(path: str, old: str, new: str, gate: str) -> None:
    source = swap(text("0.17.1", path), old, new)
    source = source.replace("import MixtureOfExperts,", "import MixtureOfExperts, SupportsEagle3,")
    where = with_texts("0.17.1", {path: source})
    assert states(where, DEEPSEEK)[gate] is State.CLOSED
    assert verified(where, DEEPSEEK)[gate] is State.REFUSED
    with pytest.raises(RefusedError):
        made(where, DEEPSEEK)


# sources that are between two releases


def with_upstreams_decoder() -> Sources:
    """0.17.1 with the decoder of 0.18.0: it captures, and its `__init__` sets the ids, but the
    setter is not in it: 0.18.0 has that in the causal class."""
    old, new = text("0.17.1", DEEPSEEK_FILE), text("0.18.0", DEEPSEEK_FILE)
    parts = []
    for source in (old, new):
        node = class_in(source, "DeepseekV2Model")
        parts.append("\n".join(source.splitlines()[node.lineno - 1 : node.end_lineno]))
    return with_texts("0.17.1", {DEEPSEEK_FILE: swap(old, *parts)})


def test_the_interface_never_delegates_to_a_method_that_is_not_there() -> None:
    where = with_upstreams_decoder()
    assert states(where, DEEPSEEK)["aux-capture"] is State.NATIVE
    assert not states(where, DEEPSEEK)["interface"].passes
    try:
        after = made(where, DEEPSEEK).after[DEEPSEEK_FILE].decode()
    except RefusedError:
        return
    delegated = "self.model.set_aux_hidden_state_layers(" in after
    decoder = class_in(after, "DeepseekV2Model")
    methods = {getattr(statement, "name", None) for statement in decoder.body}
    assert not delegated or "set_aux_hidden_state_layers" in methods


def test_an_interface_of_upstream_over_our_capture() -> None:
    """0.18.0 with the capture of 0.17.1: the causal class sets the attribute of the decoder."""
    old, new = text("0.17.1", DEEPSEEK_FILE), text("0.18.0", DEEPSEEK_FILE)
    parts = []
    for source in (new, old):
        node = class_in(source, "DeepseekV2Model")
        parts.append("\n".join(source.splitlines()[node.lineno - 1 : node.end_lineno]))
    where = with_texts("0.18.0", {DEEPSEEK_FILE: swap(new, *parts)})
    result = made(where, DEEPSEEK)
    assert [edit.name for edit in result.edits] == ["aux-capture"]
    assert all(s.passes for s in states(where.with_overlay(result.after), DEEPSEEK).values())


@pytest.mark.parametrize(
    "name",
    ["MixtralForCausalLM", "Gemma3ForCausalLM", "Glm4MoeForCausalLM", "Ernie4_5_MoeForCausalLM"],
)
def test_a_model_of_the_newer_protocol_is_not_given_the_older_methods(name: str) -> None:
    """From 0.18.0 the runner asks for `get_eagle3_default_aux_hidden_state_layers`, and decoders
    are `EagleModelMixin`s: the methods of 0.17.1 are not what belongs there."""
    where = sources("0.32.0")
    result = made(where, name)
    (structure,) = find(where.with_overlay(result.after), name).structures
    assert structure.decoder is not None
    after = result.after[structure.decoder.path].decode()
    assert "EagleModelMixin" in map(ast.unparse, class_in(after, structure.decoder.name).bases)
    before = where.data(structure.decoder.path).decode()
    _, come = changes(before, after)
    assert not any("get_eagle3_aux_hidden_state_layers" in line for line in come)


@settings(derandomize=True, database=None, deadline=None, max_examples=6)
@given(st.sets(st.sampled_from(sorted(patched("0.15.1"))), min_size=1), st.booleans())
def test_any_files_patched_already_are_left_and_the_rest_done(
    paths: set[str], series_fits: bool
) -> None:
    done = patched("0.15.1")
    extra = "" if series_fits else "# fork\n"
    where = with_texts("0.15.1", {path: done[path] + extra for path in paths})
    result = made(where, KIMI)
    assert result.after.keys() == done.keys() - paths
    assert all(s.passes for s in states(where.with_overlay(result.after), KIMI).values())
