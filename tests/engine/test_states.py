"""Captured state k is the residual stream on entry to layer k."""

import checks
import pytest

LAYERS = {
    "own": (1, 4, 7),
    "shared": (1, 4, 7),
    "ends": (0, 4, 8),
    "last": (1, 4, 8),
    "default": (2, 4, 5),  # (2, L // 2, L - 3) for L = 8
}


@pytest.mark.versions("speculating")
def test_states_are_the_residual_stream(version, scenario, life):
    checks.captured(life["patched"][scenario], LAYERS[scenario.split("/")[1]])


@pytest.mark.versions("speculating")
def test_states_are_those_of_transformers(version, scenario, life):
    checks.equals_reference(life["patched"][scenario], LAYERS[scenario.split("/")[1]])


@pytest.mark.versions("extracting")
def test_extracted_states_are_those_of_transformers(version, scenario, life):
    checks.equals_reference(life["patched"][scenario], (0, 4, 8))
