"""The loops of real decoders, in the forms that each era writes them."""

from __future__ import annotations

import ast

import pytest
from real import find, finding, method_in, sources, swap, text, with_texts

from vllm_eagle3_patches import decoder
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import State
from vllm_eagle3_patches.sources import find_classes

MODELS = "vllm/model_executor/models"
SLICE = "self.{}[self.start_layer:self.end_layer]"
ISLICE = "islice(self.{}, self.start_layer, self.end_layer)"
RANGE = "range(self.start_layer, self.end_layer)"
LAYERS = "        for layer in islice(self.layers, self.start_layer, self.end_layer):\n"


def forward(version: str, name: str, cls: str) -> ast.FunctionDef:
    return method_in(text(version, f"{MODELS}/{name}.py"), cls, "forward")


# version, file, class; what is iterated, container, index, whether it is absolute; state
@pytest.mark.parametrize(
    ("version", "name", "cls", "iterated", "container", "index", "absolute", "residual"),
    [
        ("0.10.1", "dots1", "Dots1Model", SLICE, "layers", None, False, "residual"),
        ("0.10.1", "granite", "GraniteModel", SLICE, "layers", None, False, None),
        ("0.10.1", "gpt2", "GPT2Model", SLICE, "h", None, False, None),
        ("0.10.1", "exaone", "ExaoneModel", SLICE, "h", None, False, "residual"),
        ("0.10.1", "dbrx", "DbrxModel", SLICE, "blocks", None, False, None),
        ("0.10.1", "llama", "LlamaModel", f"enumerate({SLICE})", "layers", "idx", False,
         "residual"),
        ("0.10.1", "glm4_moe", "Glm4MoeModel", RANGE, "layers", "i", True, "residual"),
        ("0.11.2", "glm4_moe", "Glm4MoeModel", ISLICE, "layers", None, False, "residual"),
        ("0.11.2", "gpt2", "GPT2Model", ISLICE, "h", None, False, None),
        ("0.11.2", "mpt", "MPTModel", ISLICE, "blocks", None, False, None),
        ("0.11.2", "solar", "SolarModel", RANGE, "layers", "i", True, "residual"),
        ("0.11.2", "arcee", "ArceeModel", f"enumerate({ISLICE})", "layers", "idx", False,
         "residual"),
        ("0.11.2", "qwen3_vl", "Qwen3LLMModel",
         "islice(enumerate(self.{}), self.start_layer, self.end_layer)", "layers", "layer_idx",
         True, "residual"),
        ("0.17.1", "minimax_m2", "MiniMaxM2Model", SLICE, "layers", None, False, "residual"),
        ("0.17.1", "granitemoehybrid", "GraniteMoeHybridModel", "enumerate(self.{})", "layers",
         "i", True, "residual"),
        ("0.24.0", "step3p5", "Step3p5Model", RANGE, "layers", "i", True, None),
        ("0.24.0", "moondream3", "Moondream3TextModel", f"enumerate({ISLICE})", "blocks",
         "i", False, None),
        ("0.24.0", "moss_audio", "MossQwen3Model", f"enumerate({SLICE}, start=self.start_layer)",
         "layers", "layer_idx", True, "residual"),
        ("0.32.0", "cohere2_moe", "Cohere2MoeModel",
         f"enumerate({ISLICE}, start=self.start_layer)", "layers", "layer_idx", True, "residual"),
        ("0.32.0", "granite", "GraniteModel", f"enumerate({ISLICE})", "layers", "idx", False,
         None),
        ("0.32.0", "solar", "SolarModel", RANGE, "layers", "i", True, "residual"),
    ],
)  # fmt: skip
def test_the_loop_forms_of_each_era(
    version: str, name: str, cls: str, iterated: str, container: str, index: str | None,
    absolute: bool, residual: str | None,
) -> None:  # fmt: skip
    loop = decoder.find_loop(forward(version, name, cls))
    assert ast.unparse(loop.node.iter) == iterated.format(container)
    assert (loop.container, loop.index, loop.absolute) == (container, index, absolute)
    assert loop.hidden in ("hidden_states", "x", "hidden_state")
    assert loop.residual == residual
    assert len(loop.calls) == 1


@pytest.mark.parametrize(
    ("version", "name", "cls", "reason"),
    [
        ("0.10.1", "bamba", "BambaModel", "the loop iterates `range(len(self.layers))`"),
        ("0.10.1", "phi4flash", "SambaYModel", "break, continue or else"),
        ("0.17.1", "ouro", "OuroModel", "stands under a condition"),
        ("0.17.1", "iquest_loopcoder", "IQuestLoopCoderModel", "stands under a condition"),
        ("0.10.1", "mllama", "MllamaTextModel", "the layer's result goes to"),
        ("0.32.0", "medusa", "ResidualBlock", "does not call the layer in an assignment"),
    ],
)
def test_a_loop_of_another_form_is_refused(version: str, name: str, cls: str, reason: str) -> None:
    with pytest.raises(RefusedError) as raised:
        decoder.find_loop(forward(version, name, cls))
    assert reason in raised.value.what


@pytest.mark.parametrize(
    ("new", "known"),
    [
        (LAYERS, True),
        (LAYERS.replace("islice(", "reversed("), False),
        (LAYERS.replace("self.start_layer", "0"), False),
        (LAYERS.replace("self.start_layer", "self.start_layer + 1"), False),
        ("        for layer in self.layers[: self.end_layer]:\n", False),
        ("        for layer in self.layers[::-1]:\n", False),
        ("        for layer in self.layers[self.start_layer : self.end_layer]:\n", True),
        ("        for layer in self.layers:\n", True),
    ],
)
def test_only_all_layers_of_the_rank_in_their_order_are_known(new: str, known: bool) -> None:
    source = swap(text("0.17.1", f"{MODELS}/glm4_moe.py"), LAYERS, new)
    [(_, header)] = decoder.loops(method_in(source, "Glm4MoeModel", "forward"))
    assert (header.container, header.known) == ("layers", known)


def test_a_range_that_is_not_the_ranks_is_not_known() -> None:
    source = text("0.17.1", f"{MODELS}/solar.py")
    for other in ("range(self.end_layer)", "range(len(self.layers))"):
        changed = swap(source, RANGE, other)
        [(_, header)] = decoder.loops(method_in(changed, "SolarModel", "forward"))
        assert not header.known


def test_one_call_in_each_branch_is_one_call() -> None:
    source = text("0.17.1", f"{MODELS}/glm4_moe.py")
    call = "            hidden_states, residual = layer(positions, hidden_states, residual)\n"
    both = f"            if residual is None:\n    {call}            else:\n    {call}"
    cls = "Glm4MoeModel"
    loop = decoder.find_loop(method_in(swap(source, call, both), cls, "forward"))
    assert len(loop.calls) == 2
    with pytest.raises(RefusedError, match="more than once"):
        decoder.find_loop(method_in(swap(source, call, call + call), cls, "forward"))


@pytest.mark.parametrize(
    ("version", "path", "cls", "owner"),
    [
        ("0.17.1", "deepseek_v2", "DeepseekV2Model", "DeepseekV2Model"),
        ("0.17.1", "qwen3", "Qwen3Model", "Qwen2Model"),
        ("0.32.0", "mistral_large_3_eagle", "EagleMistralLarge3Model", "DeepseekV2Model"),
        ("0.32.0", "gemma3", "Gemma3Model", "Gemma3Model"),
    ],
)
def test_the_forward_that_runs_the_layers_may_be_inherited(
    version: str, path: str, cls: str, owner: str
) -> None:
    (site,) = find_classes(sources(version), f"{MODELS}/{path}.py", cls)
    found = decoder.forward_with_loop(sources(version), site)
    assert found is not None
    assert found[0].name == owner
    assert decoder.loops(found[1])


def test_a_class_without_layers_has_no_such_forward() -> None:
    (site,) = find_classes(sources("0.17.1"), f"{MODELS}/glm4_moe.py", "Glm4MoeForCausalLM")
    assert decoder.forward_with_loop(sources("0.17.1"), site) is None


def test_a_forward_nearer_by_that_does_something_else_hides_the_loop() -> None:
    path = f"{MODELS}/qwen3.py"
    own = "class Qwen3Model(Qwen2Model):\n"
    extra = "    def forward(self, *args):\n        return {}\n\n"
    for body, runs in (("super().forward(*args)", True), ("args", False)):
        where = with_texts(
            "0.17.1", {path: swap(text("0.17.1", path), own, own + extra.format(body))}
        )
        (site,) = find_classes(where, path, "Qwen3Model")
        assert (decoder.forward_with_loop(where, site) is not None) is runs


def test_the_refusal_reaches_the_user_with_its_place() -> None:
    found = finding(sources("0.17.1"), "OuroForCausalLM", "aux-capture")
    assert (found.state, found.file) == (State.REFUSED, f"{MODELS}/ouro.py")
    assert "stands under a condition" in found.detail
    (structure,) = find(sources("0.17.1"), "OuroForCausalLM").structures
    assert structure.decoder is not None and structure.decoder.name == "OuroModel"
