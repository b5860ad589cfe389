"""After `apply` the engine drafts, drafts are accepted, and no token changes."""

import checks
import pytest


def without_drafter(life, scenario):
    return life["patched"][scenario.split("/")[0] + "/off"]


@pytest.mark.versions("patched")
def test_apply_opens_every_gate(version, life):
    found = life["apply"]
    assert found["exit"] == 0
    assert {gate["state"] for gate in found["gates"]} <= {"open", "native"}
    assert found["changed"]


@pytest.mark.versions("speculating")
def test_it_drafts(version, scenario, life):
    checks.generated(life["patched"][scenario])
    checks.drafted(life["patched"][scenario])


@pytest.mark.versions("speculating")
def test_drafts_are_accepted(version, scenario, life):
    checks.accepted(life["patched"][scenario])


@pytest.mark.versions("speculating")
def test_no_token_changes(version, scenario, life):
    checks.lossless(life["patched"][scenario], without_drafter(life, scenario))


@pytest.mark.versions("any")
def test_a_request_with_an_image(version, life):
    answer, plain = life["patched"]["kimi_k25/shared"], life["patched"]["kimi_k25/off"]
    checks.drafted(answer, "image_counters")
    assert answer["image_prompt_tokens"] == 13  # the placeholder became four tokens
    assert answer["image_tokens"] == plain["image_tokens"]


@pytest.mark.versions("compiled")
def test_compiled_gives_the_tokens_of_eager(version, compiled, life):
    answer = compiled["kimi_k25/shared/compile"]
    checks.lossless(answer, life["patched"]["kimi_k25/off"])
    checks.accepted(answer)
    checks.equals_reference(answer, (1, 4, 7))
    assert answer["graphs"] >= 2  # the target's and the drafter's
