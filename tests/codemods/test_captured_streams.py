"""What patched decoders of every shape capture, by running their real code on stand-ins."""

from __future__ import annotations

import pytest

from codemods.standin import Model, Run, model
from vllm_eagle3_patches.stream import Stream

LAYERS = 7
ALL = tuple(range(LAYERS + 1))
RANKS = [(0, 7), (0, 3), (3, 7), (3, 5)]
# One of each shape of loop, kind of stream and era.
SHAPES = {
    "deferred, islice": [
        ("0.11.2", "Glm4MoeForCausalLM"), ("0.17.1", "Glm4MoeForCausalLM"),
        ("0.24.0", "Glm4MoeForCausalLM"), ("0.32.0", "Glm4MoeForCausalLM"),
        ("0.17.1", "MixtralForCausalLM"), ("0.32.0", "MixtralForCausalLM"),
        ("0.17.1", "Gemma2ForCausalLM"), ("0.32.0", "Gemma2ForCausalLM"),
    ],
    "deferred, slice": [("0.10.1", "Dots1ForCausalLM"), ("0.17.1", "MiniMaxM2ForCausalLM")],
    "deferred, range": [
        ("0.10.1", "Glm4MoeForCausalLM"), ("0.17.1", "SolarForCausalLM"),
        ("0.32.0", "SolarForCausalLM"),
    ],
    "deferred, enumerate": [("0.17.1", "Qwen3NextForCausalLM"), ("0.32.0", "HYV3ForCausalLM")],
    "stale": [
        ("0.10.1", "CohereForCausalLM"), ("0.17.1", "CohereForCausalLM"),
        ("0.32.0", "CohereForCausalLM"), ("0.17.1", "Exaone4ForCausalLM"),
        ("0.32.0", "Exaone4ForCausalLM"), ("0.17.1", "PhiMoEForCausalLM"),
        ("0.17.1", "StableLmForCausalLM"), ("0.32.0", "HyperCLOVAXForCausalLM"),
        ("0.17.1", "GraniteMoeHybridForCausalLM"),
    ],
    "none beside": [("0.17.1", "MolmoForCausalLM"), ("0.32.0", "MolmoForCausalLM")],
    "hidden only": [
        ("0.10.1", "GPT2LMHeadModel"), ("0.17.1", "GPT2LMHeadModel"),
        ("0.32.0", "GPT2LMHeadModel"), ("0.17.1", "GraniteForCausalLM"),
        ("0.17.1", "GPTJForCausalLM"), ("0.32.0", "GraniteMoeForCausalLM"),
        ("0.17.1", "DbrxForCausalLM"),
    ],
    "hidden only, range": [("0.24.0", "Step3p5ForCausalLM"), ("0.32.0", "Step3p5ForCausalLM")],
}  # fmt: skip
KINDS = {
    "deferred": Stream.SUM, "stale": Stream.HIDDEN, "none": Stream.EITHER, "hidden": Stream.HIDDEN
}  # fmt: skip
EACH = [(v, n) for shape in SHAPES.values() for v, n in shape]

each_model = pytest.mark.parametrize("of", EACH, ids="-".join, indirect=True)


@pytest.fixture
def of(request: pytest.FixtureRequest) -> Model:
    return model(*request.param)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_shapes_are_what_they_are_called(shape: str) -> None:
    for version, name in SHAPES[shape]:
        found = model(version, name)
        assert found.kind is KINDS[shape.split(",")[0].split()[0]], name
        assert (found.loop.residual is None) == shape.startswith("hidden only"), name


@each_model
def test_without_ids_all_is_as_before(of: Model) -> None:
    for start, end in RANKS:
        before = Run(of, of.before, start=start, end=end)
        after = Run(of, of.after, start=start, end=end)
        assert (after.result, after.streams) == (before.result, before.streams)
        assert isinstance(after.result, float if end == LAYERS else dict)


@each_model
def test_each_id_is_the_stream_on_entry_to_its_layer(of: Model) -> None:
    before = Run(of, of.before)
    assert len(set(before.streams.values())) == LAYERS + 1
    for k in ALL:
        assert Run(of, of.after, (k,)).result == (before.result, [before.streams[k]]), k
    expected = [before.streams[k] for k in ALL]
    assert Run(of, of.after, ALL).result == (before.result, expected)
    assert Run(of, of.after, (5, 0, 7)).result == (before.result, [expected[k] for k in (0, 5, 7)])


@each_model
def test_ids_are_absolute_on_a_later_pipeline_rank(of: Model) -> None:
    before = Run(of, of.before, start=3)
    for ids in ((3,), (4, 6), (3, 5, 7)):
        after = Run(of, of.after, ids, start=3)
        assert after.result == (before.result, [before.streams[k] for k in ids])
