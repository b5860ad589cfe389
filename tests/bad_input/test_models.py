"""What is given to `--model`."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from command import DEEPSEEK, KIMI, VERSION, call, start
from wheels import tree

from bad_input.outcome import refused
from bad_input.users import as_user


@pytest.mark.parametrize("command", ["check", "diff", "apply"])
@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("NoSuchModel", "knows no architecture 'NoSuchModel'"),
        ("DeepseekV3ForCausalML", "did you mean DeepseekV3ForCausalLM"),
        ("./nowhere", "folder with config.json"),
        ("/nowhere", "/nowhere"),
        ("~/nowhere", "~/nowhere"),
        ("a/b/c", "a/b/c"),
        ("not an identifier", "not an identifier"),
        ("new\nline", "--model"),
    ],
)
def test_an_unknown_model(site: Path, command: str, model: str, said: str) -> None:
    refused(2, said, command=command, site=site, words=["--model", model])


MAMBA = "vllm/model_executor/models/mamba.py"


def test_a_model_that_cannot_have_eagle3_opened(site: Path) -> None:
    """A model without attention: no token has a state of its own."""
    shutil.copyfile(tree(VERSION) / MAMBA, site / MAMBA)
    for command in ("diff", "apply"):
        done = refused(3, command=command, site=site, words=["--model", "MambaForCausalLM"])
        assert "is refused" in done.err
    assert call("check", "--model", "MambaForCausalLM", site=site).code == 3


def test_an_empty_model(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`--model "$MODEL"` with no such variable: not the current folder."""
    model_with(tmp_path, {"architectures": [DEEPSEEK], "model_type": "deepseek_v3"})
    monkeypatch.chdir(tmp_path)
    for command in ("check", "diff", "apply"):
        refused(2, "--model", command=command, site=site, words=["--model", ""])


def test_the_model_is_a_file(site: Path, tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"")
    refused(2, str(file), command="check", site=site, words=["--model", str(file)])


def model_with(folder: Path, data: bytes | object) -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    content = data if isinstance(data, bytes) else json.dumps(data).encode()
    (folder / "config.json").write_bytes(content)
    return ["--model", str(folder)]


CONFIGS: dict[str, tuple[bytes | object, str]] = {
    "not JSON": (b"architectures: [X]\n", "not JSON"),
    "empty": (b"", "not JSON"),
    "cut": (b'{"architectures": ["Dee', "not JSON"),
    "not UTF-8": (b'{"architectures": ["\xff"]}', "not JSON"),
    "deep": (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "not JSON"),
    "a list": ([], "not a JSON object"),
    "a word": ("DeepseekV3ForCausalLM", "not a JSON object"),
    "null": (None, "not a JSON object"),
    "without architectures": ({"model_type": "bert"}, "no `architectures`"),
    "without anything": ({}, "no `architectures`"),
    "no list": ({"architectures": "DeepseekV3ForCausalLM"}, "not a list of names"),
    "an empty list": ({"architectures": []}, "no `architectures`"),
    "numbers": ({"architectures": [1], "model_type": 2}, "no `architectures`"),
    "null values": ({"architectures": None, "model_type": None}, "no `architectures`"),
    "unknown": ({"architectures": ["NoSuchModel"]}, "NoSuchModel"),
    "a huge number": (b'{"model_type": ' + b"9" * 10_000 + b"}", "config.json"),
}


@pytest.mark.parametrize("how", CONFIGS)
def test_a_bad_config(site: Path, tmp_path: Path, how: str) -> None:
    data, said = CONFIGS[how]
    words = model_with(tmp_path / "model", data)
    for command in ("check", "diff", "apply"):
        done = refused(2, said, command=command, site=site, words=words)
        assert len(done.err) < 2000
    assert call("revert", *words, site=site).code == 2 or how == "unknown"


def test_no_config(site: Path, tmp_path: Path) -> None:
    said = ("there is no config.json", str(tmp_path / "config.json"))
    refused(2, *said, command="check", site=site, words=["--model", str(tmp_path)])


def test_a_huge_config(site: Path, tmp_path: Path) -> None:
    """Not even read: it takes no space here, and 64 GiB if it were."""
    words = model_with(tmp_path / "model", b"{}")
    os.truncate(tmp_path / "model/config.json", 64 << 30)
    refused(2, "config.json", "bytes", command="check", site=site, words=words)


def test_a_config_that_is_no_file(site: Path, tmp_path: Path) -> None:
    """A pipe that nobody writes to must not be waited for."""
    os.mkfifo(tmp_path / "config.json")
    with start("check", "--model", str(tmp_path), site=site) as process:
        try:
            _, errors = process.communicate(timeout=8)
        finally:
            process.kill()
    assert process.returncode == 2
    assert b"config.json" in errors
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").mkdir()
    refused(2, "config.json", command="check", site=site, words=["--model", str(tmp_path)])


@pytest.mark.parametrize(
    "model_type", ['a"', "a\\", "a\nb", "\ud800", 'a" if __import__("os") else "b', "a,b", "", "-"]
)
def test_a_model_type_that_is_no_name_never_gets_into_vllms_source(
    site: Path, tmp_path: Path, model_type: str
) -> None:
    config = {"architectures": [DEEPSEEK], "model_type": model_type}
    for command in ("check", "diff", "apply"):
        words = model_with(tmp_path / "model", config)
        refused(2, "model_type", command=command, site=site, words=words)


@pytest.mark.parametrize(
    ("config", "architecture", "model_type"),
    [
        (
            {
                "architectures": ["KimiK25ForConditionalGeneration"],
                "model_type": "kimi_k25",
                "text_config": {"model_type": "kimi_k2"},
            },
            KIMI,
            "kimi_k2",
        ),
        ({"architectures": [DEEPSEEK], "model_type": "kimi_k2"}, DEEPSEEK, "kimi_k2"),
        ({"model_type": "deepseek_v3"}, DEEPSEEK, "deepseek_v3"),
        ({"architectures": [DEEPSEEK, "Other"], "text_config": []}, DEEPSEEK, None),
    ],
)
def test_a_good_config(
    site: Path, tmp_path: Path, config: object, architecture: str, model_type: str | None
) -> None:
    words = model_with(tmp_path / "model", config)
    done = call("check", "--json", *words, site=site)
    assert done.json["target"] == {"architecture": architecture, "model_type": model_type}
    assert done.code == 1


HUB_ID = "moonshotai/Kimi-K2.5"


def cached(home: Path, data: bytes | object | None) -> Path:
    """A Hugging Face cache that holds the model, as huggingface_hub lays it out."""
    folder = home / "hub/models--moonshotai--Kimi-K2.5"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("abc123")
    snapshot = folder / "snapshots/abc123"
    snapshot.mkdir(parents=True)
    if data is not None:
        (folder / "blobs").mkdir()
        blob = folder / "blobs/0123"
        blob.write_bytes(data if isinstance(data, bytes) else json.dumps(data).encode())
        (snapshot / "config.json").symlink_to("../../blobs/0123")
    return folder


def test_a_hub_id_in_the_cache(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached(tmp_path / "hf", {"architectures": [KIMI], "text_config": {"model_type": "kimi_k2"}})
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    assert call("apply", "--model", HUB_ID, site=site).code == 0
    assert call("check", "--model", HUB_ID, site=site).code == 0
    monkeypatch.setenv("HF_HOME", str(tmp_path / "empty"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf/hub"))
    assert call("check", "--model", HUB_ID, site=site).code == 0


@pytest.mark.parametrize("cache", ["none", "no ref", "no snapshot", "no config", "cut", "binary"])
def test_a_hub_id_that_is_not_in_the_cache(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    """Nothing is fetched: the host may have no network, and a check must not load a model."""
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    if cache != "none":
        folder = cached(tmp_path / "hf", None if cache == "no config" else b'{"architect')
        if cache == "no ref":
            (folder / "refs/main").unlink()
        elif cache == "binary":
            (folder / "refs/main").write_bytes(b"\xff\0")
        elif cache == "no snapshot":
            shutil.rmtree(folder / "snapshots")
    for command in ("check", "apply"):
        done = refused(2, command=command, site=site, words=["--model", HUB_ID])
        assert HUB_ID in done.err or "config.json" in done.err


def test_no_home(site: Path) -> None:
    """As in a container without HOME and a user that /etc/passwd does not know."""

    def action() -> None:
        os.environ.pop("HOME", None)
        os.environ.pop("HF_HOME", None)
        done = call("check", "--model", HUB_ID, site=site)
        assert done.code == 2, done
        assert "Traceback" not in done.err

    assert as_user(action, site, 54321) == 0


def test_the_version_is_said_where_the_bytes_are_not_known(site: Path) -> None:
    assert VERSION in refused(2, command="check", site=site, words=["--model", "NoSuchModel"]).err
