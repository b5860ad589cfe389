"""What the residual stream is, decided on the layer classes of real models."""

from __future__ import annotations

import pytest
from real import finding, method_in, sources, swap, text, with_texts

from vllm_eagle3_patches import decoder, stream
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import State
from vllm_eagle3_patches.sources import Sources, find_classes
from vllm_eagle3_patches.stream import Stream

MODELS = "vllm/model_executor/models"
S, H, E = Stream.SUM, Stream.HIDDEN, Stream.EITHER


def decided(where: Sources, name: str, cls: str) -> Stream:
    (site,) = find_classes(where, f"{MODELS}/{name}.py", cls)
    found = decoder.forward_with_loop(where, site)
    assert found is not None
    loop = decoder.find_loop(found[1])
    return stream.stream_of(where, loop, stream.layer_classes(where, site, loop.container))


@pytest.mark.parametrize(
    ("name", "cls", "expected", "versions"),
    [
        # The layer begins by adding: the residual is deferred.
        ("glm4_moe", "Glm4MoeModel", S, "0.10.1 0.11.2 0.17.1 0.24.0 0.32.0"),
        ("glm4", "Glm4Model", S, "0.11.2 0.17.1 0.24.0 0.32.0"),
        ("gemma2", "Gemma2Model", S, "0.10.1 0.11.2 0.17.1 0.24.0 0.32.0"),
        ("gemma3", "Gemma3Model", S, "0.10.1 0.11.2 0.17.1 0.24.0 0.32.0"),
        ("mixtral", "MixtralModel", S, "0.10.1 0.11.2 0.17.1 0.24.0 0.32.0"),
        ("solar", "SolarModel", S, "0.11.2 0.17.1 0.24.0 0.32.0"),
        ("exaone", "ExaoneModel", S, "0.10.1 0.11.2 0.17.1 0.24.0 0.32.0"),
        ("jais2", "Jais2Model", S, "0.17.1 0.24.0"),
        ("deepseek_v2", "DeepseekV2Model", S, "0.10.1 0.11.2 0.17.1 0.24.0"),
        # The layer overwrites what comes beside the complete stream.
        ("commandr", "CohereModel", H, "0.10.1 0.11.2 0.17.1 0.24.0 0.32.0"),
        ("cohere2_moe", "Cohere2MoeModel", H, "0.32.0"),
        ("exaone4", "Exaone4Model", H, "0.10.1 0.11.2 0.17.1 0.24.0 0.32.0"),
        ("phimoe", "PhiMoEModel", H, "0.10.1 0.11.2 0.17.1 0.24.0 0.32.0"),
        ("stablelm", "StableLMEpochModel", H, "0.10.1 0.11.2 0.17.1 0.24.0"),
        ("hyperclovax", "HyperCLOVAXModel", H, "0.32.0"),
        ("granitemoehybrid", "GraniteMoeHybridModel", H, "0.11.2 0.17.1 0.24.0 0.32.0"),
        # The layer returns the stream alone.
        ("gpt2", "GPT2Model", H, "0.10.1 0.11.2 0.17.1 0.24.0 0.32.0"),
        ("granite", "GraniteModel", H, "0.10.1 0.11.2 0.17.1 0.24.0 0.32.0"),
        ("gpt_j", "GPTJModel", H, "0.10.1 0.11.2 0.17.1 0.24.0 0.32.0"),
        ("step3p5", "Step3p5Model", H, "0.24.0 0.32.0"),
        ("olmo2", "Olmo2Model", H, "0.11.2 0.17.1 0.24.0"),
        # The layer hands on None beside the stream.
        ("minimax_text_01", "MiniMaxText01Model", E, "0.10.1 0.11.2"),
        ("gemma4", "Gemma4Model", E, "0.24.0 0.32.0"),
        # One of its two layer classes defers, the other hands on None.
        ("molmo", "MolmoModel", E, "0.10.1 0.11.2 0.17.1 0.24.0 0.32.0"),
    ],
)  # fmt: skip
def test_the_stream_of_real_models(name: str, cls: str, expected: Stream, versions: str) -> None:
    for version in versions.split():
        assert decided(sources(version), name, cls) is expected, version


@pytest.mark.parametrize(
    ("version", "name", "cls", "reason"),
    [
        ("0.17.1", "chameleon", "ChameleonModel", "the layers do not agree"),
        ("0.17.1", "nemotron_nas", "DeciModel",
         "DeciLMDecoderLayer uses its residual in a way that is not known: if self._is_no_op"),
        ("0.32.0", "deepseek_v2", "DeepseekV2Model",
         "DeepseekV2DecoderLayer uses its residual in a way that is not known"),
        ("0.32.0", "llama_eagle3", "LlamaModel", "uses its residual in a way that is not known"),
    ],
)  # fmt: skip
def test_a_stream_that_is_not_certain_is_refused(
    version: str, name: str, cls: str, reason: str
) -> None:
    with pytest.raises(RefusedError) as raised:
        decided(sources(version), name, cls)
    assert reason in raised.value.what


def test_the_refusal_names_the_line_that_stopped_it() -> None:
    with pytest.raises(RefusedError) as raised:
        decided(sources("0.17.1"), "nemotron_nas", "DeciModel")
    path, _, line = str(raised.value.where).rpartition(":")
    assert path == f"{MODELS}/nemotron_nas.py"
    lines = text("0.17.1", path).splitlines()
    assert "self._is_no_op_attention" in lines[int(line) - 1]


COHERE = f"{MODELS}/commandr.py"
GLM = f"{MODELS}/glm4_moe.py"
OVERWRITE = "        residual = hidden_states\n"
FUSED = "            hidden_states, residual = self.input_layernorm(hidden_states, residual)\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (FUSED, FUSED.replace("(hidden_states, residual)", "(residual, hidden_states)")),
        (FUSED, FUSED.replace("self.input_layernorm", "self.other_layernorm")),
        (FUSED, f"{FUSED}            residual = residual * 2\n"),
        (FUSED, "            residual = residual + hidden_states\n"),
        ("        self.input_layernorm = RMSNorm(", "        self.input_layernorm = nn.LayerNorm("),
        ("        if residual is None:\n            residual = hidden_states\n",
         "        hidden_states = hidden_states * 2\n        if residual is None:\n"
         "            residual = hidden_states\n"),
        ("        if residual is None:\n            residual = hidden_states\n",
         "        if residual is None:\n            residual = positions\n"),
    ],
)  # fmt: skip
def test_a_layer_that_begins_in_another_way_is_refused(old: str, new: str) -> None:
    assert decided(sources("0.17.1"), "glm4_moe", "Glm4MoeModel") is S
    where = with_texts("0.17.1", {GLM: swap(text("0.17.1", GLM), old, new)})
    with pytest.raises(RefusedError):
        decided(where, "glm4_moe", "Glm4MoeModel")


def test_a_norm_that_does_not_add_first_is_no_deferral() -> None:
    """The same call with a norm of the file's own, which ignores the residual."""
    source = swap(
        text("0.17.1", GLM), "        self.input_layernorm = RMSNorm(",
        "        self.input_layernorm = OwnNorm(",
    )  # fmt: skip
    own = "\n\nclass OwnNorm(nn.Module):\n    def forward(self, x, residual=None):\n{}"
    adds = (
        "        if residual is not None:\n            x = x + residual\n            residual = x\n"
    )
    adds += "        return x, residual\n"
    for body, known in ((adds, True), ("        return x, residual\n", False)):
        where = with_texts("0.17.1", {GLM: source + own.format(body)})
        if known:
            assert decided(where, "glm4_moe", "Glm4MoeModel") is S
        else:
            with pytest.raises(RefusedError, match="not known"):
                decided(where, "glm4_moe", "Glm4MoeModel")


def test_reading_the_residual_before_it_is_overwritten_is_refused() -> None:
    source = text("0.17.1", COHERE)
    assert source.count(OVERWRITE) == 1
    for new in ("        residual = hidden_states + residual\n",
                f"        hidden_states = hidden_states + residual\n{OVERWRITE}"):  # fmt: skip
        where = with_texts("0.17.1", {COHERE: swap(source, OVERWRITE, new)})
        with pytest.raises(RefusedError, match="not known"):
            decided(where, "commandr", "CohereModel")


def test_a_naive_capture_of_a_stale_residual_is_not_taken_as_right() -> None:
    """A capture that adds Cohere's stale residual boots and drafts, and is wrong."""
    architecture, gate = "CohereForCausalLM", "aux-capture"
    assert finding(sources("0.17.1"), architecture, gate).state is State.CLOSED
    loop = "        for layer in islice(self.layers, self.start_layer, self.end_layer):\n"
    capture = (
        "        aux_hidden_states = []\n"
        "        for idx, layer in enumerate(\n"
        "            islice(self.layers, self.start_layer, self.end_layer), self.start_layer\n"
        "        ):\n"
        "            if idx in self.aux_hidden_state_layers:\n"
        "                aux_hidden_states.append({})\n"
    )
    last = "        hidden_states, _ = self.norm(hidden_states, residual)\n"
    pair = f"{last}        if aux_hidden_states:\n"
    pair += "            return hidden_states, aux_hidden_states\n"
    for value, state in (("hidden_states", State.NATIVE), ("hidden_states + residual", None)):
        source = swap(text("0.17.1", COHERE), loop, capture.format(value))
        source = swap(source, last, pair)
        source = swap(
            source, "class CohereModel(nn.Module):\n",
            "class CohereModel(nn.Module):\n    aux_hidden_state_layers = ()\n\n",
        )  # fmt: skip
        found = finding(with_texts("0.17.1", {COHERE: source}), architecture, gate)
        assert found.state is (state or State.REFUSED), value


def test_a_decoder_that_drops_its_last_residual_is_noticed() -> None:
    forward = method_in(text("0.17.1", GLM), "Glm4MoeModel", "forward")
    assert not stream.drops_residual(forward, decoder.find_loop(forward))
    norm = "        hidden_states, _ = self.norm(hidden_states, residual)\n"
    source = swap(text("0.17.1", GLM), norm, "        hidden_states = self.norm(hidden_states)\n")
    forward = method_in(source, "Glm4MoeModel", "forward")
    assert stream.drops_residual(forward, decoder.find_loop(forward))
    found = finding(with_texts("0.17.1", {GLM: source}), "Glm4MoeForCausalLM", "aux-capture")
    assert found.state is State.REFUSED and "drops that of the last one" in found.detail


def test_several_streams_in_one_state_are_refused() -> None:
    path = f"{MODELS}/granite.py"
    loop = "        for layer in islice(self.layers, self.start_layer, self.end_layer):\n"
    source = swap(
        text("0.17.1", path), loop, f"        hidden_states = hidden_states.unsqueeze(0)\n{loop}"
    )
    found = finding(with_texts("0.17.1", {path: source}), "GraniteForCausalLM", "aux-capture")
    assert found.state is State.REFUSED and "several streams" in found.detail


def test_layers_that_attend_to_an_encoder_are_refused() -> None:
    found = finding(sources("0.32.0"), "WhisperForConditionalGeneration", "aux-capture")
    assert found.state is State.REFUSED
