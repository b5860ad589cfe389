"""Every gate is real and none is missing: opened one at a time, the start-up ends at the next."""

import checks
import jobs
import pytest

MODEL_TYPE = {"0.15": "Eagle3", "0.16": "Eagle3", "0.17": "eagle3"}
ERRORS = {
    "image-token": "'KimiK25Config' object has no attribute 'image_token_index'",
    "weight-sharing": "'DeepseekV2Model' object has no attribute 'model'",
    "interface": "Model does not support EAGLE3 interface but aux_hidden_state_outputs was "
    "requested",
    "aux-capture": "'DeepseekV2Model' object has no attribute 'set_aux_hidden_state_layers'",
}


def ends_at(answer, gate, version, model_type="kimi_k2"):
    if gate == "model-type":
        checks.refused(answer, f"{MODEL_TYPE[version[:4]]} is only supported for [")
        checks.refused(answer, f"hf_text_config.model_type='{model_type}'")
    else:
        checks.refused(answer, ERRORS[gate])


@pytest.mark.versions("patched")
def test_check_names_the_gates_that_a_start_up_meets(version, life):
    found = life["check"]
    assert found["exit"] == 1
    closed = [gate["gate"] for gate in found["gates"] if gate["state"] == "closed"]
    assert tuple(closed) == jobs.CLOSED[version]


@pytest.mark.versions("patched")
@pytest.mark.parametrize("model", jobs.MODELS)
def test_stock_ends_at_the_model_type(version, model, life):
    model_type = "deepseek_v3" if model == "deepseek_v3" else "kimi_k2"
    ends_at(life["stock"][f"{model}/shared"], "model-type", version, model_type)


@pytest.mark.versions("patched")
def test_each_gate_in_its_turn(version, half_open):
    assert tuple(half_open) == jobs.CLOSED[version][1:]
    for gate, answers in half_open.items():
        ends_at(answers["kimi_k25/shared"], gate, version)


@pytest.mark.versions("patched")
@pytest.mark.parametrize("model", ["kimi_k2", "deepseek_v3"])
def test_a_text_model_goes_from_the_model_type_to_the_interface(version, model, half_open):
    ends_at(half_open["image-token"][f"{model}/shared"], "interface", version)


@pytest.mark.long
@pytest.mark.versions("patched")
def test_no_gate_can_stay_closed(version, one_closed):
    for gate, answers in one_closed.items():
        ends_at(answers["kimi_k25/shared"], gate, version)
