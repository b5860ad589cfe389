"""What the real pair needs, from headers alone."""

from __future__ import annotations

import json
from pathlib import Path

from preflight import published
from preflight.folders import write_model

from rehearsal import models
from vllm_eagle3_patches.rehearsal import memory


def test_the_drafter_by_its_headers(tmp_path: Path) -> None:
    shapes = published.tensors(published.LLAMA31_YUHUILI, models.LLAMA31_8B)
    folder = write_model(tmp_path, published.LLAMA31_YUHUILI, shapes)
    head = int.from_bytes((folder / "model.safetensors").read_bytes()[:8], "little")
    data = (folder / "model.safetensors").stat().st_size - 8 - head
    assert memory.stored(folder) == data


def test_an_index_tells_where_the_shards_are_not_at_hand(tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 595 * 10**9}, "weight_map": {"a": "model-1.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    assert memory.stored(tmp_path) == 595 * 10**9


def test_nothing_is_made_up(tmp_path: Path) -> None:
    assert memory.stored(tmp_path) is None
    found = memory.estimate(tmp_path, tmp_path, {}, 3, 8)
    assert found.as_json() == {
        "target_bytes": None,
        "drafter_bytes": None,
        "aux_state_bytes": None,
        "tensor_parallel": 8,
        "weights_per_gpu_bytes": None,
    }
    assert "not known" in found.lines()[0]


def test_shares_and_states(tmp_path: Path) -> None:
    for name, size in (("target", 8000), ("drafter", 801)):
        folder = tmp_path / name
        folder.mkdir()
        index = {"metadata": {"total_size": size}, "weight_map": {"a": "x.safetensors"}}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    found = memory.estimate(
        tmp_path / "target", tmp_path / "drafter", models.KIMI_K25, 3, 8, batched=1000
    )
    assert found.per_gpu == 1000 + 101
    assert found.states == 2 * 3 * 7168 * 1000 * 2  # each state, and their concatenation
