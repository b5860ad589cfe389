from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.folders import header, write_tensors
from vllm_eagle3_patches.preflight.safetensors import BadFile, Tensor, read


def test_names_shapes_and_types(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"fc.weight": (2, 6), "d2t": (5,), "scale": ()})
    assert read(path) == {
        "fc.weight": Tensor((2, 6), "BF16"),
        "d2t": Tensor((5,), "I64"),
        "scale": Tensor((), "BF16"),
    }


def test_data_is_not_read(tmp_path: Path) -> None:
    """4 TB of data, of which the file system holds nothing."""
    path = tmp_path / "model.safetensors"
    write_tensors(path, {"a": (2**20, 2**21)})
    assert path.stat().st_size > 2**42
    assert path.stat().st_blocks * 512 < 2**20
    assert read(path)["a"].shape == (2**20, 2**21)


ENDLESS = b'{"x": {"dtype": "F32", "shape": [Infinity], "data_offsets": [0, 4]}}'


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 5\n", "LFS"),
        (b"", "0 bytes"),
        (b"short", "5 bytes"),
        ((10**12).to_bytes(8, "little") + b"{}", "larger than any"),
        ((50).to_bytes(8, "little") + b"{}", "cut short"),
        ((2).to_bytes(8, "little") + b"[]", "not as it must be"),
        ((2).to_bytes(8, "little") + b"{x", "not as it must be"),
        (len(ENDLESS).to_bytes(8, "little") + ENDLESS, "not as it must be"),
    ],
)
def test_bad_files(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(BadFile, match=reason):
        read(path)


@given(st.data())
def test_every_cut_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    head, size = header({"fc.weight": (3, 4), "d2t": (2,)})
    whole = head + bytes(size)
    length = data.draw(st.integers(0, len(whole) - 1))
    path = tmp_path_factory.mktemp("cut") / "model.safetensors"
    path.write_bytes(whole[:length])
    with pytest.raises(BadFile):
        read(path)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["dtype", "shape", "data_offsets", "__metadata__", "a"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(JSON)
def test_any_header_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    text = json.dumps(value).encode()
    path = tmp_path_factory.mktemp("any") / "model.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    try:
        assert all(isinstance(tensor, Tensor) for tensor in read(path).values())
    except BadFile as error:
        assert str(error)
