"""`check --all`, on whole real releases whose registry is cut down to a few architectures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command import Done, call, rerecord, unchanged
from fake_dist import fake_dist
from wheels import install

from vllm_eagle3_patches import survey
from vllm_eagle3_patches.target import Request, Target, find

REGISTRY = "vllm/model_executor/models/registry.py"
GLM_FILE = "vllm/model_executor/models/glm4_moe.py"
LLAMA, GLM, COHERE = "LlamaForCausalLM", "Glm4MoeForCausalLM", "CohereForCausalLM"
MAMBA, INTERN, KIMI_VL = "MambaForCausalLM", "InternVLChatModel", "KimiVLForConditionalGeneration"
INNER = "DeepseekV2ForCausalLM"  # Kimi-VL's language model
NAMES = (INNER, LLAMA, GLM, COHERE, MAMBA, INTERN, KIMI_VL)


def few(into: Path, version: str = "0.32.0", names: tuple[str, ...] = NAMES) -> Path:
    """The release with a registry that keeps these targets, and all drafters."""
    site = install(version, into)
    registry = site / REGISTRY
    unwanted = [e for e in survey.entries(survey.Sources(site)) if e.architecture not in names]
    lines = registry.read_text().splitlines(keepends=True)
    for entry in unwanted:
        end = entry.line - 1
        while (
            not lines[end].partition("#")[0].rstrip().endswith("),")
        ):  # an entry over several lines
            end += 1
        for at in range(entry.line - 1, end + 1):
            lines[at] = ""
    registry.write_text("".join(lines))
    rerecord(site, REGISTRY)
    return site


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return few(tmp_path)


def architectures(done: Done) -> dict[str, dict[str, Any]]:
    return {row["architecture"]: row for row in done.json["architectures"]}


def states(done: Done) -> dict[str, str]:
    return {name: row["state"] for name, row in architectures(done).items()}


STATES = {
    INNER: "native",
    LLAMA: "native",
    GLM: "closed",
    COHERE: "closed",
    MAMBA: "refused",
    INTERN: "closed",
    KIMI_VL: "closed",
}


def test_every_architecture_is_listed_and_nothing_written(site: Path) -> None:
    with unchanged(site):
        done = call("check", "--all", "--json", site=site)
    assert done.code == done.json["exit"] == 0
    assert states(done) == STATES
    assert done.json["target"] is None
    assert done.json["installation"] == "pristine"
    assert done.json["counts"] == {"closed": 4, "native": 2, "refused": 1}
    rows = architectures(done)
    assert rows[GLM]["gates"] == ["interface", "aux-capture"]
    assert rows[INTERN]["config"] == ["language-model"]
    assert rows[INTERN]["kind"] == "multimodal"
    assert "without attention" in rows[MAMBA]["detail"]
    assert rows[MAMBA]["file"] == "vllm/model_executor/models/mamba.py"
    assert rows[MAMBA]["line"] > 0


def test_what_only_upstream_claims_is_said_to_be_a_claim(tmp_path: Path) -> None:
    name = "ArceeForCausalLM"  # runs with the code of transformers
    where = few(tmp_path, names=(LLAMA, name))
    rows = architectures(call("check", "--all", "--json", site=where))
    assert (rows[name]["state"], rows[name]["detail"]) == ("native", survey.CLAIMED)
    assert (rows[LLAMA]["state"], rows[LLAMA]["detail"]) == ("native", "")
    assert survey.CLAIMED in call("check", "--all", site=where).out


def test_a_transformers_too_old_for_the_backend_is_told_before_anything_is_loaded(
    tmp_path: Path,
) -> None:
    name = "SmolLM3ForCausalLM"
    site = few(tmp_path, "0.17.1", (LLAMA, name))
    row = architectures(call("check", "--all", "--json", site=site))[name]
    own = "this vLLM's own requirement, transformers<5,>=4.56.0, excludes it"
    needs = "its EAGLE-3 needs transformers >= 5.0.0, "
    assert (row["state"], row["gates"]) == ("closed", ["model-type"])
    assert row["detail"] == f"{survey.CLAIMED}; {needs}not found beside vLLM; {own}"
    assert row["detail"] in call("check", "--all", site=site).out

    info = fake_dist(site, "transformers", "4.57.1", files={})
    done = call("check", "--all", "--json", site=site)
    row = architectures(done)[name]
    assert (done.code, row["state"], row["gates"]) == (0, "refused", ["interface"])
    assert states(done)[LLAMA] == "native"
    with unchanged(site):
        check, apply = (call(word, "--model", name, site=site) for word in ("check", "apply"))
    assert (check.code, apply.code) == (3, 3)
    [gate] = [text for text in check.out.splitlines() if " interface " in text]
    assert gate.startswith("  refused  interface       vllm/model_executor/models/transformers/")
    said = f"install transformers>=5.0.0 ({own}), or vLLM 0.19.1 or newer"
    assert f"{needs}and 4.57.1 is installed: " in gate and gate.endswith(said)
    assert said in apply.err

    info.rename(info.with_name("transformers-5.0.0.dist-info"))
    metadata = info.with_name("transformers-5.0.0.dist-info") / "METADATA"
    metadata.write_text(metadata.read_text().replace("Version: 4.57.1", "Version: 5.0.0"))
    row = architectures(call("check", "--all", "--json", site=site))[name]
    assert (row["state"], row["detail"]) == ("closed", survey.CLAIMED)


def test_what_runs_on_the_backend_before_eagle_3_came_to_it_says_so(tmp_path: Path) -> None:
    name = "SmolLM3ForCausalLM"
    out = call("check", "--all", site=few(tmp_path, "0.11.2", (LLAMA, name))).out
    [row] = [text for text in out.splitlines() if name in text]
    assert "runs on vLLM's Transformers backend" in row
    assert "0.13.0, for transformers >= 5, which this vLLM's own requirement" in row


def test_the_list_for_a_person(site: Path) -> None:
    done = call("check", "--all", site=site)
    lines = [line.split() for line in done.out.splitlines()]
    assert ["native", LLAMA] in lines
    assert ["can", "be", "opened", GLM, "interface,", "aux-capture"] in lines
    [wrapper] = [line for line in done.out.splitlines() if INTERN in line]
    assert "its config names the language model" in wrapper
    [mamba] = [line for line in done.out.splitlines() if MAMBA in line]
    assert mamba.lstrip().startswith("refused") and "mamba.py:" in mamba
    assert "7 architectures: 2 native, 4 can be opened, 1 refused" in done.out
    assert "apply --site-packages" in done.out.splitlines()[-1]
    assert call("check", "--all", "--quiet", site=site).out == ""


def test_what_is_listed_as_closed_is_what_apply_opens(site: Path) -> None:
    for name in (GLM, KIMI_VL):
        assert call("apply", "--model", name, site=site).code == 0
    done = call("check", "--all", "--json", site=site)
    assert done.json["installation"] == "patched"
    assert states(done) == {**STATES, GLM: "open", KIMI_VL: "open"}
    assert call("revert", "--model", GLM, site=site).code == 0
    assert states(call("check", "--all", "--json", site=site)) == {**STATES, KIMI_VL: "open"}
    assert call("revert", site=site).code == 0
    assert states(call("check", "--all", "--json", site=site)) == STATES


@pytest.mark.parametrize(
    "words",
    [("--model", GLM), ("--drafter", "x"), ("--serve-args", "-tp 2"), ("--", "vllm", "serve", "x")],
)
def test_all_goes_with_no_target(site: Path, words: tuple[str, ...]) -> None:
    done = call("check", "--all", "--site-packages", str(site), *words)
    assert done.code == 2
    assert "--all lists every architecture" in done.err


def test_a_changed_file_taints_what_rests_on_it_and_nothing_else(site: Path) -> None:
    with (site / GLM_FILE).open("a") as file:
        file.write("\n# Somebody's.\n")
    done = call("check", "--all", "--json", site=site)
    assert done.code == 4
    assert states(done) == {**STATES, GLM: "refused"}
    assert GLM_FILE in architectures(done)[GLM]["detail"]
    assert GLM_FILE in done.json["error"]["what"]
    allowed = call("check", "--all", "--json", "--allow-modified", site=site)
    assert (allowed.code, states(allowed)) == (0, STATES)
    assert GLM_FILE in allowed.json["notes"][0]


def test_a_change_since_it_was_patched_is_exit_4(site: Path) -> None:
    assert call("apply", "--model", GLM, site=site).code == 0
    with (site / GLM_FILE).open("a") as file:
        file.write("\n# Somebody's.\n")
    done = call("check", "--all", "--json", site=site)
    assert done.code == 4
    assert "changed by someone else" in done.json["error"]["what"]


def test_no_vllm_is_exit_5(tmp_path: Path) -> None:
    assert call("check", "--all", site=tmp_path).code == 5


def test_an_entry_that_the_reader_fails_on_does_not_hide_the_rest(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(sources: survey.Sources, wanted: Request, version: str) -> Target:
        if wanted.architecture == COHERE:
            raise KeyError("surprise")
        return find(sources, wanted, version)

    monkeypatch.setattr(survey, "find", failing)
    done = call("check", "--all", "--json", site=site)
    assert states(done) == {**STATES, COHERE: "refused"}
    assert "KeyError: 'surprise'" in architectures(done)[COHERE]["detail"]


def test_a_registry_entry_without_its_class_is_refused_with_its_line(site: Path) -> None:
    registry = site / REGISTRY
    text = registry.read_text()
    registry.write_text(text.replace('("commandr", "CohereForCausalLM")', '("commandr", "Gone")'))
    rerecord(site, REGISTRY)
    row = architectures(call("check", "--all", "--json", site=site))[COHERE]
    assert row["state"] == "refused"
    assert "Gone" in row["detail"]
    assert (row["file"], row["line"] > 0) == (REGISTRY, True)


def test_where_vllm_lists_model_types_only_a_config_tells_those_that_are_not_known(
    tmp_path: Path,
) -> None:
    unknown = "Fairseq2LlamaForCausalLM"
    site = few(tmp_path, "0.17.1", (INNER, LLAMA, GLM, unknown))
    rows = architectures(call("check", "--all", "--json", site=site))
    assert (rows[LLAMA]["state"], rows[LLAMA]["config"]) == ("native", [])
    assert (rows[GLM]["state"], rows[GLM]["config"]) == ("closed", [])
    assert "model-type" in rows[GLM]["gates"]
    assert (rows[unknown]["state"], rows[unknown]["config"]) == ("native", ["model-type"])


def test_what_is_native_stays_so_beside_a_target_that_needs_the_same_file(tmp_path: Path) -> None:
    """The list of model types is one file for all targets of 0.17.1."""
    names = ("Fairseq2LlamaForCausalLM", "TransformersForCausalLM", "LlavaForConditionalGeneration")
    site = few(tmp_path, "0.17.1", (INNER, LLAMA, *names))
    before = architectures(call("check", "--all", "--json", site=site))
    assert call("apply", "--model", INNER, site=site).code == 0
    after = architectures(call("check", "--all", "--json", site=site))
    assert after.pop(INNER)["state"] == "open"
    assert before.pop(INNER)["state"] == "closed"
    assert after == before
    assert "transformers" in after["TransformersForCausalLM"]["detail"]


def test_a_wrapper_opened_by_its_name_still_rests_on_its_config(site: Path) -> None:
    assert call("apply", "--model", INTERN, site=site).code == 0
    row = architectures(call("check", "--all", "--json", site=site))[INTERN]
    assert (row["state"], row["config"]) == ("open", ["language-model"])


def test_no_headings_without_a_list(site: Path) -> None:
    assert call("apply", "--model", GLM, site=site).code == 0
    (site / GLM_FILE).write_text("")
    done = call("check", "--all", site=site)
    assert done.code == 4
    assert "multimodal" not in done.out
