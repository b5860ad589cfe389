"""Without a speculative config nothing changes, and revert brings the stock behaviour back."""

import checks
import jobs
import pytest


@pytest.mark.versions("patched")
@pytest.mark.parametrize("model", jobs.MODELS)
def test_logits_are_bit_equal_when_off(version, model, life):
    stock, patched = (life[phase][f"{model}/off"] for phase in ("stock", "patched"))
    checks.generated(stock)
    checks.lossless(patched, stock)
    assert patched["logits"] == stock["logits"]


@pytest.mark.versions("patched")
def test_revert_brings_the_stock_error_back(version, life):
    assert life["revert"]["exit"] == 0
    for model in jobs.MODELS:
        answer = life["reverted"][f"{model}/shared"]
        checks.refused(answer, " is only supported for ")
        assert answer["error"] == life["stock"][f"{model}/shared"]["error"]
    assert life["reverted"]["kimi_k25/off"]["logits"] == life["stock"]["kimi_k25/off"]["logits"]


@pytest.mark.versions("native")
def test_a_native_version_is_left_alone(version, life):
    assert life["apply"]["exit"] == 0
    assert {gate["state"] for gate in life["apply"]["gates"]} <= {"native", "n/a"}
    assert life["apply"]["changed"] == []
