"""The kept figures of a GPU hold, the checks would see if they did not, and the proof has them."""

import copy
import json
from pathlib import Path

import pytest
from engine import gpu_checks, gpu_report

KEPT = json.loads(gpu_report.KEPT.read_text())


@pytest.mark.parametrize("how", KEPT)
def test_everything_holds_of_the_figures_that_are_kept(how):
    assert KEPT[how]["exact"] == (how == "exact")
    assert gpu_checks.failures(KEPT[how]) == []


def test_every_mode_was_run_for_every_target():
    expected = {
        f"{target} {mode}"
        for target in ("llama", "glm4_moe", "gemma2", "cohere", "gemma3_mm")
        for mode in ("E1", "E2", "G1", "G2")
    }
    for figures in KEPT.values():
        assert expected <= figures["jobs"].keys()
        assert {name for name in figures["jobs"] if name.endswith("stock")} == {
            f"{name} stock" for name in expected if " G" in name and "llama" not in name
        }


def test_the_proof_has_the_section():
    proof = (Path(__file__).parents[1] / "docs/proof.md").read_text()
    assert gpu_report.section(KEPT) in proof


SPOILT = {
    "drafts nothing": (
        "cohere G2",
        lambda job: job["boots"]["drafted"]["counters"].update(accepted_tokens=0),
        "no draft was taken",
    ),
    "other tokens": (
        "gemma2 E1",
        lambda job: job["lossless"].update(equal=5),
        "other tokens",
    ),
    "a boot failed": (
        "glm4_moe E2",
        lambda job: job["boots"].update(drafted={"error": "RuntimeError: no"}),
        "did not draft: RuntimeError: no",
    ),
    "another error before": (
        "glm4_moe G1 stock",
        lambda job: job["boots"]["drafted"].update(error="RuntimeError: no"),
        "ended with RuntimeError: no",
    ),
    "no graph": ("cohere G1", lambda job: job.update(off={"lines": 0}), "no graph was taken"),
    "another graph": ("cohere G1", lambda job: job["off"].update(differ=1), "not do the same"),
    "another state": (
        "gemma3_mm G1",
        lambda job: job["reference"]["worst"]["decode"].__setitem__(3, 0.1),
        "states 1.0e-01 from the reference",
    ),
    "no state": (
        "gemma3_mm G1",
        lambda job: job["reference"]["rows"].update(decode=0),
        "decode: states",
    ),
    "not the stream": (
        "gemma3_mm E1",
        lambda job: job["boots"]["drafted"]["entry"]["worst"].update({"2": 0.5}),
        "from the stream on entry",
    ),
    "the counter-check fails": (
        "cohere E1 naive",
        lambda job: job["reference"]["worst"].update(decode=[0.0]),
        "stale residual is only",
    ),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_figure_that_does_not_hold_is_told(what):
    name, spoil, told = SPOILT[what]
    figures = copy.deepcopy(KEPT["exact"])
    spoil(figures["jobs"][name])
    found = gpu_checks.failures(figures)
    assert len(found) == 1
    assert told in found[0]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("apply", {"exit": 3, "changed": []}, "apply opened nothing"),
        ("again", ["gemma2.py"], "a second apply wrote something"),
        ("reverted_digest", "0", "not every byte as before after revert"),
    ],
)
def test_a_product_that_does_otherwise_is_told(key, value, told):
    figures = copy.deepcopy(KEPT["exact"])
    figures["trees"]["gemma2"][key] = value
    assert gpu_checks.failures(figures) == [f"gemma2: {told}"]
