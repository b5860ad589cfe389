"""What the patched decoder captures, by running its real code on stand-ins for tensors."""

import itertools

import pytest
from real import CLOSED, DEEPSEEK_FILE, patched, text

from codemods.stream import Run, decoder, expected

NAME = "aux-capture"
LAYERS = 7


def source(version: str) -> str:
    return patched(version, NAME)[DEEPSEEK_FILE]


@pytest.fixture(params=CLOSED)
def version(request: pytest.FixtureRequest) -> str:
    return request.param


def test_without_ids_all_is_as_before(version: str) -> None:
    for start, end in [(0, 7), (0, 3), (3, 7), (3, 5)]:
        before = Run(text(version, DEEPSEEK_FILE), start=start, end=end)
        after = Run(source(version), start=start, end=end)
        assert after.result == before.result
        assert after.calls == before.calls
        assert isinstance(after.result, int if end == LAYERS else dict)


def test_each_id_is_the_stream_on_entry_to_its_layer(version: str) -> None:
    for k in range(LAYERS):
        run = Run(source(version), (k,))
        assert run.aux == [run.streams[k]]


def test_the_last_id_is_the_stream_after_the_last_layer_before_the_norm(version: str) -> None:
    run = Run(source(version), (LAYERS,))
    assert run.aux == [run.streams[LAYERS]]
    number, _, hidden, residual, _ = run.calls[-1]
    assert number == LAYERS - 1
    stream = hidden + residual
    assert run.aux == [3**number + stream % 7 + stream]


def test_all_ids_come_in_the_order_of_the_layers(version: str) -> None:
    ids = tuple(range(LAYERS + 1))
    assert Run(source(version), ids).aux == expected(Run(source(version)), ids)
    assert len(set(Run(source(version), ids).aux)) == LAYERS + 1
    for asked in itertools.permutations((0, 3, LAYERS)):
        run = Run(source(version), asked)
        assert run.aux == expected(run, asked)


def test_capturing_changes_neither_hidden_states_nor_calls(version: str) -> None:
    plain = Run(text(version, DEEPSEEK_FILE))
    run = Run(source(version), tuple(range(LAYERS + 1)))
    assert run.result[0] == plain.result
    assert run.calls == plain.calls


def test_ids_are_absolute_on_a_later_pipeline_rank(version: str) -> None:
    ids = (3, 5, LAYERS)
    run = Run(source(version), ids, start=3)
    assert [number for number, *_ in run.calls] == [3, 4, 5, 6]
    assert run.aux == expected(run, ids)
    assert run.aux[0] == 5 + 11  # as received from the rank before


def test_a_rank_that_is_not_the_last_returns_intermediate_tensors(version: str) -> None:
    plain = Run(text(version, DEEPSEEK_FILE), start=2, end=5)
    assert Run(source(version), (2, 5), start=2, end=5).result == plain.result


@pytest.mark.parametrize(
    "ids", [(-1,), (LAYERS + 1,), (2, 99), (2, 2, 4), (0, -3), (3, 5, 3)], ids=str
)
def test_impossible_ids_are_an_error_when_set(version: str, ids: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="EAGLE-3 aux hidden state layers"):
        Run(source(version), ids)


def test_ids_before_the_last_rank_are_an_error_when_set(version: str) -> None:
    with pytest.raises(ValueError, match=r"lie in 3\.\.7, the layers of the last pipeline stage"):
        Run(source(version), (2, 5), start=3)


def test_a_later_setting_replaces_the_earlier(version: str) -> None:
    model = Run(source(version), (1, 2)).model
    model.set_aux_hidden_state_layers([3])
    assert model.aux_hidden_state_layers == (3,)
    with pytest.raises(ValueError):
        model.set_aux_hidden_state_layers((99,))
    assert model.aux_hidden_state_layers == (3,)
    model.set_aux_hidden_state_layers(())
    assert isinstance(model.forward(17, "positions", None).value, int)


def test_the_setting_of_one_model_is_not_that_of_another(version: str) -> None:
    Run(source(version), (1,))
    assert decoder(source(version), True, True).aux_hidden_state_layers == ()


def test_the_default_layers_are_low_middle_and_high(version: str) -> None:
    model = decoder(source(version), True, True)
    model.layers = [None] * 61
    assert model.get_eagle3_aux_hidden_state_layers() == (2, 30, 58)
