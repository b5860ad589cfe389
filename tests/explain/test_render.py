from __future__ import annotations

from explain.logs import FORMS, Error, Frame, healthy, prologue, shards, worker_failure
from explain.reading import read
from vllm_eagle3_patches.explain.render import as_json, as_text

FORM = FORMS["0.11"]
LOADER = Frame("vllm/v1/spec_decode/eagle.py", "load_model", "self._share(target)", 1290)
ERROR = Error("AttributeError", "Target model does not have 'model' attribute", [LOADER])


def text(log: bytes, fix: str | None = None) -> str:
    return "\n".join(as_text(read(log), fix))


def test_a_failure() -> None:
    assert (
        text(worker_failure(FORM, ERROR).text(), "vllm-eagle3-patch apply")
        == """\
failed while loading the drafter: weight-sharing
  vLLM       0.17.1
  target     (moonshotai/Kimi-K2.5)
  drafter    (lightseekorg/kimi-k2.5-eagle3)

    AttributeError: Target model does not have 'model' attribute

  in    Worker_TP0, line 7 of the log, 2 times
  why   the target's language model has no .model, whose embeddings the drafter wants to share
  gate  weight-sharing
  fix   vllm-eagle3-patch apply
  at    vllm/v1/spec_decode/eagle.py:1290 load_model  self._share(target)
  on that way lie functions that our edits change: image-token, weight-sharing"""
    )


def test_a_healthy_server() -> None:
    assert (
        text(healthy(FORM, 12, 1000).text())
        == """\
the server is up after 4 min 30 s
  vLLM       0.17.1
  target     KimiK25ForConditionalGeneration (moonshotai/Kimi-K2.5)
  drafter    Eagle3LlamaForCausalLM (lightseekorg/kimi-k2.5-eagle3)
  aux layers (2, 30, 58)
  acceptance 1.2% of 1000 drafted, mean length 2.63

  also in the log:
    line 11, aux-layers: only 1.2% of 1000 drafted tokens were accepted: the drafter gets other \
layers than it was trained on, or a setting of its config.json is ignored"""
    )


def test_a_server_that_loads() -> None:
    log = "".join(f"{line}\n" for line in [*prologue(FORM), *shards(83)]).encode()
    assert text(log).splitlines()[0] == "still loading: loading the target: shards 83 %"


def test_long_messages_are_shortened() -> None:
    long = Error(
        "ValueError", "Model architectures ['EagleX'] are not supported for now. " + "x" * 9999
    )
    found = text(worker_failure(FORM, long).text())
    assert len(found) < 2000
    cause = as_json(read(worker_failure(FORM, long).text()), None)["cause"]
    assert isinstance(cause, dict)
    assert len(cause["message"]) < 1000


def test_json_of_a_failure() -> None:
    answer = as_json(read(worker_failure(FORM, ERROR).text()), "do this")
    assert answer["vllm"] == {"version": "0.17.1", "package": None, "distribution": None}
    assert answer["target"] is None
    assert answer["cause"] == {
        "class": "weight-sharing",
        "process": "Worker_TP0",
        "exception": "AttributeError",
        "message": "Target model does not have 'model' attribute",
        "log_line": 7,
    }
    assert (answer["status"], answer["gate"], answer["fix"]) == (
        "failed",
        "weight-sharing",
        "do this",
    )
    assert answer["frames"] == [
        {
            "path": "vllm/v1/spec_decode/eagle.py",
            "line": 1290,
            "function": "load_model",
            "code": "self._share(target)",
        }
    ]
    assert answer["edits"] == ["image-token", "weight-sharing"]


def test_json_of_a_healthy_server() -> None:
    answer = as_json(read(healthy(FORM).text()), None)
    assert (answer["status"], answer["cause"], answer["fix"]) == ("up", None, None)
    assert answer["server"] == {
        "model": "moonshotai/Kimi-K2.5",
        "drafter": "lightseekorg/kimi-k2.5-eagle3",
        "drafter_architecture": "Eagle3LlamaForCausalLM",
        "aux_layers": "(2, 30, 58)",
        "stage": "starting the API server",
        "percent": None,
        "seconds": 270,
        "acceptance_rate": 0.545,
        "acceptance_length": 2.63,
        "starts": 1,
    }
