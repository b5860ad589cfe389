"""The proof is proved: a patch with a mistake in it fails the checks of this suite."""

import checks
import jobs
import pytest
from test_states import LAYERS

DRAFTERS = ("own", "default")


def all_checks(answers):
    for drafter in DRAFTERS:
        answer = answers[f"deepseek_v3/{drafter}"]
        checks.drafted(answer)
        checks.accepted(answer)
        checks.lossless(answer, answers["deepseek_v3/off"])
        checks.captured(answer, LAYERS[drafter])
        checks.equals_reference(answer, LAYERS[drafter])


@pytest.mark.parametrize("mutation", ["none"])
def test_the_patch_itself_passes(mutation, mutated):
    all_checks(mutated)


@pytest.mark.parametrize("mutation", [name for name in jobs.MUTATIONS if name != "none"])
@pytest.mark.parametrize("drafter", DRAFTERS)
def test_a_mistake_is_caught(mutation, drafter, mutated):
    """It starts and drafts and changes no token: only the states tell, each check by itself."""
    answer = mutated[f"deepseek_v3/{drafter}"]
    checks.drafted(answer)
    checks.lossless(answer, mutated["deepseek_v3/off"])
    with pytest.raises(AssertionError):
        checks.captured(answer, LAYERS[drafter])
    with pytest.raises(AssertionError):
        checks.equals_reference(answer, LAYERS[drafter])


@pytest.mark.parametrize("mutation", ["residual dropped"])
def test_without_the_residual_nothing_is_accepted(mutation, mutated):
    for drafter in DRAFTERS:
        with pytest.raises(AssertionError):
            checks.accepted(mutated[f"deepseek_v3/{drafter}"])
