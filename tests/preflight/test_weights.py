from __future__ import annotations

import json
from pathlib import Path

import pytest

from preflight.folders import write_tensors
from vllm_eagle3_patches.preflight.weights import INDEX, look


def test_one_file(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model.safetensors", {"a": (1,)})
    found = look(tmp_path)
    assert found.tensors is not None and list(found.tensors) == ["a"]
    assert not found.problems


def test_shards_without_an_index(tmp_path: Path) -> None:
    for number in "12":
        write_tensors(tmp_path / f"model-{number}.safetensors", {f"a{number}": (1,)})
    assert list(look(tmp_path).tensors or ()) == ["a1", "a2"]


def test_only_the_files_of_the_index(tmp_path: Path) -> None:
    write_tensors(tmp_path / "model-1.safetensors", {"a": (1,)})
    write_tensors(tmp_path / "training.safetensors", {"b": (1,)})
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": "model-1.safetensors"}}))
    assert list(look(tmp_path).tensors or ()) == ["a"]


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[]", '{"weight_map": []}', '{"weight_map": {"a": 1}}', "version https://git-lfs."],
)
def test_index_that_is_none(tmp_path: Path, text: str) -> None:
    write_tensors(tmp_path / "model.safetensors", {"a": (1,)})
    (tmp_path / INDEX).write_text(text)
    assert look(tmp_path).problems


def test_index_never_leaves_the_folder(tmp_path: Path) -> None:
    outside = tmp_path / "outside.safetensors"
    write_tensors(outside, {"secret": (1,)})
    folder = tmp_path / "drafter"
    folder.mkdir()
    (folder / INDEX).write_text(json.dumps({"weight_map": {"a": "../outside.safetensors"}}))
    found = look(folder)
    assert "secret" not in (found.tensors or ())
    assert any("outside the folder" in problem for problem in found.problems)


def test_pytorch_files_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"PK")
    found = look(tmp_path)
    assert found.tensors is None and found.unread == ("pytorch_model.bin",)
    assert not found.problems


@pytest.mark.parametrize("name", ["training_args.bin", "optimizer.pt", None])
def test_nothing_to_load(tmp_path: Path, name: str | None) -> None:
    if name:
        (tmp_path / name).write_bytes(b"PK")
    assert look(tmp_path).problems


def test_pointer_of_a_pytorch_file(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert "LFS" in look(tmp_path).problems[0]
