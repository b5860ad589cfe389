"""Whose files are missing: the drafter's or the target's."""

from __future__ import annotations

import pytest

from explain.cases import ARGUMENTS
from explain.logs import Error, Frame, Process
from explain.reading import class_of, read

API = Process("(APIServer pid=1) ")
DRAFTER, TARGET = "lightseekorg/kimi-k2.5-eagle3", "/data/Kimi-K2.5"
SPECULATIVE = Frame("vllm/config/speculative.py", "__post_init__", "self.draft_model_config = x")
MODEL = Frame("vllm/engine/arg_utils.py", "create_model_config", "ModelConfig(")


def log(message: str, *frames: Frame, arguments: str = ARGUMENTS) -> bytes:
    lines = [arguments, *API.raw(Error("OSError", message, frames).traceback())]
    return "".join(f"{line}\n" for line in lines).encode()


@pytest.mark.parametrize(
    ("message", "frame"),
    [
        ("{} does not appear to have a file named config.json", MODEL),
        ("Can't load the configuration of '{}'.", MODEL),
        ("Cannot reach https://huggingface.co/{}: offline mode is enabled.", MODEL),
        ("Cannot find any model weights with `{}`", MODEL),
        ("[Errno 2] No such file or directory: '{}/model.safetensors'", MODEL),
        ("Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{}'.", MODEL),
        ("{} does not appear to have a file named config.json", SPECULATIVE),
    ],
)
def test_the_message_says_whose(message: str, frame: Frame) -> None:
    assert class_of(log(message.format(DRAFTER), frame)) == "drafter-missing"
    assert class_of(log(message.format(TARGET), frame)) == "runtime"


def test_the_traceback_says_whose_where_the_message_does_not() -> None:
    message = (
        "We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find "
        "them in the cached files."
    )
    assert class_of(log(message, SPECULATIVE)) == "drafter-missing"
    assert class_of(log(message, MODEL)) == "runtime"


def test_values_of_the_log_are_named() -> None:
    found = read(log(f"{DRAFTER} does not appear to have a file named config.json", MODEL))
    assert found.what == f"{DRAFTER} lacks the file config.json"
    assert found.fix == f"complete the download of {DRAFTER}"
