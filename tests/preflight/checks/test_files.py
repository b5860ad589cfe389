from __future__ import annotations

from pathlib import Path

import pytest
from real import sources

from preflight.examining import matching
from preflight.folders import write_model, write_tensors
from preflight.published import KIMI_K25, KIMI_MHA, Config, tensors, with_settings
from vllm_eagle3_patches import target
from vllm_eagle3_patches.preflight import Finding, Severity, case, examine

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1234567\n"


def look(tmp_path: Path, drafter: Path, args: str = "") -> tuple[Finding, ...]:
    model = write_model(tmp_path / "model", KIMI_K25)
    asked = case(str(model), str(drafter), args, ())
    return examine(asked.context(sources("0.18.0"), "0.18.0", target.request(str(model))))


def whole(tmp_path: Path, config: Config = KIMI_MHA) -> Path:
    return write_model(tmp_path / "drafter", config, tensors(config, KIMI_K25))


def test_whole_checkpoint_is_not_found_missing(tmp_path: Path) -> None:
    assert not matching(look(tmp_path, whole(tmp_path)), "drafter-missing")


def test_pytorch_checkpoint_is_not_found_missing(tmp_path: Path) -> None:
    drafter = write_model(tmp_path / "drafter", KIMI_MHA)
    (drafter / "pytorch_model.bin").write_bytes(b"PK\x03\x04")
    assert not matching(look(tmp_path, drafter), "drafter-missing")


def test_no_weights(tmp_path: Path) -> None:
    drafter = write_model(tmp_path / "drafter", KIMI_MHA)
    (found,) = matching(look(tmp_path, drafter), "drafter-missing")
    assert found.severity is Severity.ERROR
    assert "no *.safetensors" in found.detail


def test_lfs_pointer(tmp_path: Path) -> None:
    drafter = whole(tmp_path)
    (drafter / "model.safetensors").write_bytes(POINTER)
    (found,) = matching(look(tmp_path, drafter), "drafter-missing", "LFS")
    assert found.severity is Severity.ERROR
    assert "git lfs pull" in found.fix


def test_cut_short(tmp_path: Path) -> None:
    drafter = whole(tmp_path)
    size = (drafter / "model.safetensors").stat().st_size
    with (drafter / "model.safetensors").open("r+b") as file:
        file.truncate(size - 1)
    (found,) = matching(look(tmp_path, drafter), "drafter-missing", "cut short")
    assert found.severity is Severity.ERROR


def test_shard_of_the_index_missing(tmp_path: Path) -> None:
    drafter = write_model(tmp_path / "drafter", KIMI_MHA)
    shapes = tensors(KIMI_MHA, KIMI_K25)
    write_tensors(drafter / "model-00001.safetensors", shapes)
    index = drafter / "model.safetensors.index.json"
    index.write_text(
        '{"weight_map": {"fc.weight": "model-00001.safetensors", "x": "model-00002.safetensors"}}'
    )
    (found,) = matching(look(tmp_path, drafter), "drafter-missing", "model-00002.safetensors")
    assert found.severity is Severity.ERROR
    write_tensors(drafter / "model-00002.safetensors", {})
    assert not matching(look(tmp_path, drafter), "drafter-missing")


@pytest.mark.parametrize("there", [False, True])
def test_remote_code_that_is_not_there(tmp_path: Path, there: bool) -> None:
    config = with_settings(KIMI_MHA, auto_map={"AutoConfig": "configuration_kimi.KimiConfig"})
    drafter = whole(tmp_path, config)
    if there:
        (drafter / "configuration_kimi.py").write_text("")
    found = matching(look(tmp_path, drafter), "drafter-missing", "configuration_kimi.py")
    assert [f.severity for f in found] == ([] if there else [Severity.WARNING])
