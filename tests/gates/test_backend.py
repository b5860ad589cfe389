"""vLLM's Transformers backend, on the real sources, with a `transformers` beside them or none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from fake_dist import fake_dist
from real import find, finding, sources
from wheels import tree

from gates.places import line
from vllm_eagle3_patches import backend, plan, registry
from vllm_eagle3_patches import target as targets
from vllm_eagle3_patches.gates import aux_capture, interface, weight_sharing
from vllm_eagle3_patches.gates.base import Finding, State
from vllm_eagle3_patches.sources import Sources

SMOL, MOE = "SmolLM3ForCausalLM", "TransformersMoEForCausalLM"
MULTIMODAL = "TransformersMultiModalForCausalLM"
NEEDED = {"0.13.0": "5.0.0.dev0", "0.17.1": "5.0.0", "0.18.0": "5.2.0", "0.30.0": "5.2.0"}
BELOW_5 = "transformers<5,>=4.56.0"  # what vLLM 0.11.1 to 0.18.0 require
NATIVE = "TransformersForCausalLM is a SupportsEagle3"


def beside(version: str, into: Path, *transformers: str) -> Sources:
    """The release with distributions of `transformers` beside it, which nothing may import."""
    origin = tree(version)
    into.joinpath("vllm").symlink_to(origin / "vllm")
    [info] = origin.glob("*.dist-info")
    shutil.copytree(info, into / info.name, copy_function=shutil.copyfile)
    for other in transformers:
        files = {"transformers/__init__.py": b"raise SystemExit('transformers was imported')\n"}
        fake_dist(into, "transformers", other, files=files)
    return Sources(into)


def asked(where: Sources, architecture: str = SMOL) -> Finding:
    return finding(where, architecture, interface.NAME)


@pytest.mark.parametrize("version", NEEDED)
def test_what_is_not_found_is_said_and_the_gate_stays_native(version: str) -> None:
    found = asked(sources(version))
    assert found.state is State.NATIVE
    needs = f"{NATIVE}; its EAGLE-3 needs transformers >= {NEEDED[version]}, not found beside vLLM"
    own = f"; this vLLM's own requirement, {BELOW_5}, excludes it"
    assert found.detail == needs + own * (version != "0.30.0")


def test_a_release_that_does_not_ask_is_native_without_a_word(tmp_path: Path) -> None:
    for where in (sources("0.32.0"), beside("0.32.0", tmp_path, "4.57.1")):
        found = asked(where)
        assert (found.state, found.detail) == (State.NATIVE, NATIVE)


@pytest.mark.parametrize(
    ("version", "installed"),
    [("0.13.0", "5.0.0.dev0"), ("0.17.1", "5.0.0"), ("0.18.0", "5.2.0+local"), ("0.30.0", "5.10")],
)
def test_native_where_it_is_new_enough(version: str, installed: str, tmp_path: Path) -> None:
    found = asked(beside(version, tmp_path, installed))
    assert (found.state, found.detail) == (State.NATIVE, NATIVE)


@pytest.mark.parametrize(
    ("version", "installed"),
    [("0.13.0", "4.57.1"), ("0.17.1", "5.0.0rc1"), ("0.18.0", "5.1.0"), ("0.30.0", "4.57.1")],
)
def test_refused_where_it_is_too_old(version: str, installed: str, tmp_path: Path) -> None:
    found = asked(beside(version, tmp_path, installed))
    assert found.state is State.REFUSED
    check = f'self.check_version("{NEEDED[version]}", "Eagle3 support")'
    assert line(version, found).strip() == check
    needs = f"needs transformers >= {NEEDED[version]}, and {installed} is installed"
    assert needs in found.detail
    assert f"install transformers>={NEEDED[version]}" in found.detail
    assert (BELOW_5 in found.detail) is (version != "0.30.0")


@pytest.mark.parametrize("architecture", [MOE, MULTIMODAL, "Emu3ForConditionalGeneration"])
def test_refused_for_every_class_of_the_backend(architecture: str, tmp_path: Path) -> None:
    assert asked(beside("0.17.1", tmp_path, "4.57.1"), architecture).state is State.REFUSED


def test_vllms_own_models_do_not_ask(tmp_path: Path) -> None:
    found = asked(beside("0.17.1", tmp_path, "4.57.1"), "LlamaForCausalLM")
    assert (found.state, found.detail) == (State.NATIVE, "LlamaForCausalLM is a SupportsEagle3")


def test_what_an_uninstall_has_left_is_not_installed(tmp_path: Path) -> None:
    where = beside("0.17.1", tmp_path, "4.57.1")
    (tmp_path / "transformers-4.57.1.dist-info" / "METADATA").unlink()
    assert "not found beside vLLM" in asked(where).detail


@pytest.mark.parametrize("name", ["transformers-interpret", "transformers_stream_generator"])
def test_another_project_of_a_like_name_is_not_taken_for_it(name: str, tmp_path: Path) -> None:
    where = beside("0.17.1", tmp_path)
    info = fake_dist(tmp_path, name, "0.1", files={})
    info.rename(tmp_path / f"{name}-0.1.dist-info")
    assert "not found beside vLLM" in asked(where).detail


def test_a_version_that_is_none_decides_nothing(tmp_path: Path) -> None:
    assert asked(beside("0.17.1", tmp_path, "ours")).state is State.NATIVE


def test_of_two_the_newer_one_decides(tmp_path: Path) -> None:
    assert asked(beside("0.17.1", tmp_path, "5.10.0", "5.9.0", "4.57.1")).detail == NATIVE


def test_what_lies_beside_vllm_is_no_file_of_vllm(tmp_path: Path) -> None:
    """Else it would be in the fingerprint, and foreign to vLLM's RECORD."""
    where = beside("0.17.1", tmp_path, "4.57.1")
    assert asked(where).state is State.REFUSED
    assert all(path.startswith("vllm/") for path in where.asked_for())


@pytest.mark.parametrize(
    ("requirement", "needed", "excludes"),
    [
        ("transformers<5,>=4.56.0", "5.0.0.dev0", True),
        ("transformers (<5,>=4.56.0)", "5.2.0", True),
        ("Transformers<=4.57.6", "5", True),
        ("transformers==4.57.*", "5", True),
        ("transformers==5.*", "5.2.0", False),
        ("transformers==4.57.1", "5", True),
        ("transformers~=4.56", "5", True),
        ("transformers>=4.55.0", "5", False),
        ("transformers!=5.0.*,!=5.1.*,!=5.2.*,!=5.5.0,>=4.56.0", "5.2.0", False),
        ("transformers>=5.5.3", "5.2.0", False),
        ("transformers<5.20.0,>=5.16.1", "5.2.0", False),
        ("transformers==5.5.3", "5.2.0", False),
        ("transformers<5; extra == 'old'", "5", False),
        ("transformers-x<5", "5", False),
        ("transformers <<5", "5", False),
    ],
)
def test_which_requirement_excludes_what_is_needed(
    requirement: str, needed: str, excludes: bool, tmp_path: Path
) -> None:
    metadata = fake_dist(tmp_path) / "METADATA"
    requires = f"Requires-Dist: numpy\nRequires-Dist: {requirement}\n\n"
    metadata.write_text(metadata.read_text().replace("\n\n", f"\n{requires}", 1))
    assert backend.excluding(Sources(tmp_path), needed) == (requirement if excludes else None)


def test_a_plugin_s_requirement_is_not_vllm_s(tmp_path: Path) -> None:
    metadata = fake_dist(tmp_path, "vllm-plugin", files={}) / "METADATA"
    metadata.write_text(
        metadata.read_text().replace("\n\n", "\nRequires-Dist: transformers<5\n\n", 1)
    )
    assert backend.excluding(Sources(tmp_path), "5") is None


@pytest.mark.parametrize("gate", [weight_sharing.NAME, aux_capture.NAME])
def test_before_0_13_0_the_reason_is_the_backend(gate: str) -> None:
    found = finding(sources("0.12.0"), SMOL, gate)
    assert found.state is State.REFUSED
    assert "runs on vLLM's Transformers backend" in found.detail
    assert "upstream added EAGLE-3 to it in 0.13.0, for transformers >= 5" in found.detail
    assert f"which this vLLM's own requirement, {BELOW_5}, excludes" in found.detail
    old = finding(sources("0.10.1.1"), SMOL, gate)
    assert "in 0.13.0, for transformers >= 5; use vLLM" in old.detail  # it requires >=4.55.0


@pytest.mark.parametrize("version", ["0.10.1.1", "0.11.0", "0.11.2", "0.17.1", "0.32.0"])
def test_the_backend_is_what_the_registry_takes_from_its_module(version: str) -> None:
    where = sources(version)
    entries = [e for e in registry.read(where).values() if not e.table.startswith("_SPEC")]
    for entry in entries[::5] + [e for e in entries if e.module == "transformers"]:
        for site in registry.classes(where, entry):
            assert backend.runs(where, site) is (entry.module == "transformers"), entry


def wrapped(wrapper: str, where: Sources, folder: Path) -> Finding:
    """The gate for this wrapper around SmolLM3, as a config.json says."""
    text = {"architectures": [SMOL], "model_type": "smollm3"}
    config = {"architectures": [wrapper], "model_type": "x", "text_config": text}
    (folder / "config.json").write_text(json.dumps(config))
    target = targets.find(where, targets.request(str(folder)), "")
    assert target.language == SMOL
    return next(f for f in plan.findings(where, target) if f.gate == interface.NAME)


@pytest.mark.parametrize("version", ["0.17.1", "0.18.0", "0.32.0"])
def test_a_wrapper_that_sets_the_ids_on_the_decoder_does_not_reach_the_backend(
    version: str, tmp_path: Path
) -> None:
    found = wrapped("LlavaForConditionalGeneration", sources(version), tmp_path)
    assert found.state is State.REFUSED
    assert line(version, found).strip().startswith("def set_aux_hidden_state_layers(")
    assert "its language model, TransformersForCausalLM, runs on" in found.detail


def test_the_classes_below_a_wrapper_are_found_as_before() -> None:
    target = find(sources("0.17.1"), "LlavaForConditionalGeneration")
    assert target.language is None
    assert "transformers" not in asked(sources("0.17.1"), target.architecture).detail
