"""What must hold of an answer. The mutation tests use the very same functions."""

PROMPTS, TOKENS = 8, 64
REFERENCE = 1e-4  # relative, float32
# One draft in three gets its first token accepted with right states, next to none with wrong ones.
ACCEPTED_PER_DRAFT = 0.2


def started(answer):
    assert "error" not in answer, answer["trace"]


def refused(answer, text):
    assert "error" in answer, "it started"
    assert text in answer["error"], answer["trace"]


def generated(answer):
    started(answer)
    assert [len(tokens) for tokens in answer["tokens"]] == [TOKENS] * PROMPTS


def drafted(answer, counters="counters"):
    started(answer)
    counted = answer[counters]
    assert counted["drafts"] > 0, counted
    assert counted["draft_tokens"] == 3 * counted["drafts"], counted


def accepted(answer):
    started(answer)
    counted = answer["counters"]
    assert counted["accepted_tokens"] >= ACCEPTED_PER_DRAFT * counted["drafts"], counted


def lossless(answer, without_drafter):
    generated(answer)
    assert answer["tokens"] == without_drafter["tokens"]


def captured(answer, layer_ids):
    """The states asked for, and the residual stream on entry to exactly these layers."""
    started(answer)
    states = answer["states"]
    assert states["layer_ids"] == list(layer_ids), states
    assert states["captured_and_asked"] == [[len(layer_ids)] * 2], states
    assert states["forwards"] > 1, states
    assert states["difference"] == {str(layer_id): 0.0 for layer_id in layer_ids}, states


def equals_reference(answer, layer_ids):
    started(answer)
    reference = answer["reference"]
    assert sorted(map(int, reference)) == sorted(layer_ids), reference
    assert all(difference <= REFERENCE for difference in reference.values()), reference
