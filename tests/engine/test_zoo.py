"""Architectures of every shape, opened by `apply`: they draft, with the right states."""

import checks
import pytest
import zoo
import zoo_jobs

SHAPES = (
    zoo.DEFERRED, zoo.STALE, zoo.SINGLE, zoo.HYBRID, zoo.WRAPPER, zoo.NATIVE, zoo.CLAIMS,
    zoo.CAPTURES, zoo.NESTED, zoo.BARE,
)  # fmt: skip


def test_the_short_run_has_every_shape():
    assert {zoo_jobs.ZOO[name].shape for name in zoo_jobs.SAMPLE} == set(SHAPES)


def test_the_long_run_has_forty_that_apply_opens():
    shapes = [animal.shape for animal in zoo_jobs.ZOO.values()]
    assert len(shapes) - shapes.count(zoo.NATIVE) >= 40
    assert set(shapes) == set(SHAPES)


@pytest.mark.versions("zoo")
def test_apply_opens_it_beside_others(part, architecture, zoo_life):
    applied = zoo_life["apply"][architecture]
    assert applied["exit"] == 0, applied
    assert {gate["state"] for gate in applied["gates"]} <= {"open", "native", "n/a"}
    if zoo_jobs.ZOO[architecture].shape == zoo.NATIVE:
        assert applied["changed"] == []


@pytest.mark.versions("zoo")
def test_it_drafts(part, architecture, zoo_life):
    checks.drafted(zoo_life["answers"][architecture])


@pytest.mark.versions("zoo")
def test_no_token_changes(part, architecture, zoo_life):
    answer = zoo_life["answers"][architecture]
    checks.started(answer)
    assert answer["lossless"], answer
    assert answer["tokens"] == 6 * 24


@pytest.mark.versions("zoo")
def test_states_are_those_of_the_reference(part, architecture, zoo_life):
    """Of every layer and behind the last, where a step to the next layer would show."""
    answer = zoo_life["answers"][architecture]
    checks.equals_reference(answer, zoo_jobs.ZOO[architecture].layer_ids)
    assert answer["captured"] == len(answer["layer_ids"]) >= zoo.LAYERS
    assert sorted(answer["few"]) == ["2", "5"], answer
    assert max(answer["few"].values()) <= checks.REFERENCE, answer
    assert answer["apart"] > 100 * checks.REFERENCE, answer


@pytest.mark.versions("zoo")
def test_the_drafter_shares_what_it_has_not(part, architecture, zoo_life):
    answer = zoo_life["answers"][architecture]
    checks.started(answer)
    assert answer["embed_tokens"], answer
    assert answer["lm_head"], answer
    assert answer["default_layer_ids"] == [2, zoo.LAYERS // 2, zoo.LAYERS - 3]


@pytest.mark.versions("zoo parts")
def test_one_target_goes_and_the_others_stay_open(part, zoo_life):
    gone = zoo_life["taken_back"]
    assert zoo_life["revert_one"]["exit"] == 0, zoo_life["revert_one"]
    closed = {name for name, code in zoo_life["checks"].items() if code == 1}
    assert closed == {gone}
    assert set(zoo_life["checks"].values()) == {0, 1}


@pytest.mark.versions("zoo parts")
def test_revert_leaves_the_bytes_that_were_installed(part, zoo_life):
    assert zoo_life["revert"]["exit"] == 0, zoo_life["revert"]
    assert zoo_life["unlike_stock"] == []


@pytest.mark.parametrize("mistake", zoo_jobs.MISTAKES)
def test_a_mistake_is_caught_by_the_reference_alone(mistake, naive):
    """It drafts and changes no token; only the states tell, by much of their size."""
    (answer,) = naive.values()
    checks.drafted(answer)
    assert answer["lossless"]
    differences = {**answer["reference"], **{f"few {k}": d for k, d in answer["few"].items()}}
    assert max(differences.values()) > 1000 * checks.REFERENCE, answer
