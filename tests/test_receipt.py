from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_eagle3_patches.errors import IntegrityError
from vllm_eagle3_patches.receipt import (
    RECEIPT,
    PatchedFile,
    Pending,
    Receipt,
    dump,
    load,
    sha256,
)

DIGEST = sha256(b"after")
A = PatchedFile("vllm/a.py", sha256(b"before"), DIGEST, b"before", 0o644)
B = PatchedFile("vllm/m/b.py", sha256(b""), DIGEST, b"", 0o444, "../cache/b.py")
PLAIN = Receipt("0.1.0", "0.17.1+cu129", "vllm", ("Kimi", "Llama"), "series", ("one",), (A, B))
STARTED = replace(
    PLAIN,
    files=(),
    pending=(
        Pending(RECEIPT, dump(PLAIN), 0o644, None, DIGEST),
        Pending("vllm/a.py", b"x", 0o600, None, DIGEST),
        Pending("vllm/b.py", None, 0o644, "\udcff/b.py", None),
    ),
)


def parsed(receipt: Receipt) -> dict[str, Any]:
    content = json.loads(dump(receipt))
    assert isinstance(content, dict)
    return content


def load_bytes(folder: Path, data: bytes) -> Receipt | None:
    path = folder / "vllm-0.17.1.dist-info" / RECEIPT
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return load(path)


def refused(folder: Path, content: object) -> IntegrityError:
    """The error for a receipt with this content; it always names the file and a way out."""
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    with pytest.raises(IntegrityError) as caught:
        load_bytes(folder, data)
    assert caught.value.exit == 4
    assert caught.value.where == str(folder / "vllm-0.17.1.dist-info" / RECEIPT)
    assert caught.value.next is not None
    return caught.value


def test_no_file_is_no_receipt(tmp_path: Path) -> None:
    assert load(tmp_path / RECEIPT) is None
    assert load(tmp_path / "gone" / RECEIPT) is None


@pytest.mark.parametrize("receipt", [PLAIN, STARTED])
def test_comes_back_as_it_was(tmp_path: Path, receipt: Receipt) -> None:
    assert load_bytes(tmp_path, dump(receipt)) == receipt
    assert dump(receipt) == dump(replace(receipt))


def test_can_be_read_by_a_person() -> None:
    text = dump(PLAIN).decode("ascii")
    assert text.endswith("}\n")
    assert '"schema": 1' in text
    assert list(parsed(PLAIN)) == sorted(parsed(PLAIN))
    assert parsed(PLAIN)["targets"] == ["Kimi", "Llama"]


def test_a_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / RECEIPT).mkdir()
    with pytest.raises(IntegrityError, match="cannot be read"):
        load(tmp_path / RECEIPT)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe\x00",
        b"nonsense",
        b"[]",
        b"null",
        b"1",
        b"[" * 100_000,
        b'{"schema": ' + b"9" * 5000 + b"}",
        dump(PLAIN)[:-20],
        b"{}",
        b'{"schema": "1"}',
        b'{"schema": true}',
        b'{"schema": 0}',
        b'{"schema": 1}',
    ],
)
def test_garbled(tmp_path: Path, data: bytes) -> None:
    assert "is garbled" in refused(tmp_path, data).what


@pytest.mark.parametrize("version", ["9.1.0", 7, "\x1b[31m", None])
def test_a_newer_tool_wrote_it(tmp_path: Path, version: object) -> None:
    error = refused(tmp_path, {"schema": 2, "tool_version": version, "novelty": 1})
    assert "newer" in error.what
    assert ("9.1.0" if version == "9.1.0" else "of unknown number") in error.what
    assert "schema 2" in error.what
    assert error.next is not None
    assert "upgrade" in error.next


@pytest.mark.parametrize("key", sorted(parsed(PLAIN)))
def test_a_key_is_missing(tmp_path: Path, key: str) -> None:
    content = parsed(PLAIN)
    del content[key]
    refused(tmp_path, content)


@pytest.mark.parametrize("row", ["files", "pending"])
@pytest.mark.parametrize("value", [None, 1, "x", [], {}, True, -1, "\ud800", "a\0b", 2**70])
def test_a_value_of_the_wrong_kind(tmp_path: Path, row: str, value: object) -> None:
    optional = {(None, "link"), (None, "next"), (None, "previous"), (1, "mode"), ("x", "link")}
    for key in parsed(STARTED if row == "pending" else PLAIN)[row][0]:
        if (value, key) not in [(o, k) for o, k in optional if type(o) is type(value)]:
            content = parsed(STARTED if row == "pending" else PLAIN)
            content[row][0][key] = value
            refused(tmp_path, content)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "vllm",
        "vllm/",
        "/etc/passwd",
        "../x.py",
        "vllm/../../x.py",
        "vllm//x.py",
        "vllm/./x.py",
        "numpy/__init__.py",
        "vllm/x\ny.py",
        "vllm\\x.py",
        "vllm/\\..\\x.py",
        "vllm/\ud800.py",
    ],
)
def test_a_path_outside_the_package(tmp_path: Path, path: str) -> None:
    with pytest.raises(ValueError):
        replace(A, path=path)
    for receipt, row in ((PLAIN, "files"), (STARTED, "pending")):
        content = parsed(receipt)
        content[row][1]["path"] = path
        refused(tmp_path, content)


def test_only_pending_may_name_the_receipt(tmp_path: Path) -> None:
    content = parsed(PLAIN)
    content["files"][0]["path"] = RECEIPT
    refused(tmp_path, content)


def test_the_original_is_not_what_its_hash_says(tmp_path: Path) -> None:
    content = parsed(PLAIN)
    content["files"][0]["original"] = content["files"][1]["original"]
    assert "vllm/a.py" in refused(tmp_path, content).what


def test_packed_bytes_that_swell_are_not_unpacked(tmp_path: Path) -> None:
    huge = Pending("vllm/z.py", bytes((64 << 20) + 1), 0o644, None, None)
    assert (
        "too many"
        in refused(tmp_path, dump(replace(STARTED, pending=(*STARTED.pending, huge)))).what
    )


def test_a_path_twice(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="twice"):
        replace(PLAIN, files=(A, A))
    content = parsed(PLAIN)
    content["files"].append(content["files"][0])
    refused(tmp_path, content)


def test_pending_without_the_receipt(tmp_path: Path) -> None:
    content = parsed(STARTED)
    del content["pending"][0]
    refused(tmp_path, content)


def test_messages_stay_short(tmp_path: Path) -> None:
    content = parsed(PLAIN)
    content["files"][0]["path"] = "x" * 100_000
    assert len(str(refused(tmp_path, content))) < 1000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def read_or_refused(tmp_path: Path, data: bytes) -> None:
    try:
        receipt = load_bytes(tmp_path, data)
    except IntegrityError as error:
        str(error).encode()
    else:
        assert receipt is not None
        assert load_bytes(tmp_path, dump(receipt)) == receipt


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("receipt")


@given(data=st.binary())
def test_any_bytes(folder: Path, data: bytes) -> None:
    read_or_refused(folder, data)


@given(
    receipt=st.sampled_from([PLAIN, STARTED]),
    edits=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 5000),
)
def test_any_bytes_changed(
    folder: Path, receipt: Receipt, edits: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(dump(receipt))
    for at, byte in edits:
        data[at % len(data)] = byte
    read_or_refused(folder, bytes(data))
    read_or_refused(folder, bytes(data[:cut]))


@given(data=st.data(), value=JSON)
def test_any_value_changed(folder: Path, data: st.DataObject, value: object) -> None:
    content = parsed(data.draw(st.sampled_from([PLAIN, STARTED])))
    node: Any = content
    key: Any = data.draw(st.sampled_from(sorted(content)))
    while node[key] and isinstance(node[key], list | dict) and data.draw(st.booleans()):
        node = node[key]
        keys: list[Any] = sorted(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
    node[key] = value
    read_or_refused(folder, json.dumps(content).encode())
