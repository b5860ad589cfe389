"""Logs as PowerShell writes them, and as logrotate packs them."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from command import call
from hypothesis import given
from hypothesis import strategies as st

from explain.logs import FORMS, Error, worker_failure
from explain.reading import read
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.explain.decoding import Decoder
from vllm_eagle3_patches.explain.scan import Scanner

FAILURE = worker_failure(
    FORMS["0.11"], Error("RuntimeError", "Model does not support EAGLE3 interface")
).text()
TEXT = FAILURE.decode()
PLAIN = read(FAILURE)
FILES: dict[str, bytes] = {
    "UTF-16 with a mark": codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"),
    "UTF-16, the other way round": codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
    "UTF-16 without a mark": TEXT.encode("utf-16-le"),
    "UTF-16 without a mark, the other way round": TEXT.encode("utf-16-be"),
    "UTF-16 with the line ends of Windows": TEXT.replace("\n", "\r\n").encode("utf-16"),
    "UTF-8 with a mark": codecs.BOM_UTF8 + FAILURE,
    "gzip": gzip.compress(FAILURE),
    "gzip of several members": gzip.compress(FAILURE[:999]) + gzip.compress(FAILURE[999:]),
    "gzip with zeros after it": gzip.compress(FAILURE) + b"\0" * 512,
    "gzip of UTF-16": gzip.compress(TEXT.encode("utf-16")),
    "after a hole": b"\0" * 5000 + FAILURE,
}


@pytest.mark.parametrize("piece", [1, 3, 4096, 1 << 20])
@pytest.mark.parametrize("kind", FILES)
def test_the_answer_is_that_of_the_plain_log(kind: str, piece: int) -> None:
    assert read(FILES[kind], piece) == PLAIN


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.9])
def test_a_gzip_file_cut_short_gives_what_it_holds(keep: float) -> None:
    packed = gzip.compress(FAILURE * 50)
    scanner = Scanner()
    scanner.feed(packed[: int(len(packed) * keep)])
    scanner.finish()
    assert scanner.story.recognised and scanner.damaged is None


def test_damaged_gzip_is_said(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(FAILURE))
    packed[-8:] = b"\0" * 8  # its checksum
    log = tmp_path / "server.log.gz"
    log.write_bytes(packed)
    done = call("explain", str(log))
    assert done.code == 1 and "note: not read to its end: its gzip data is damaged" in done.out


def test_what_is_packed_otherwise_is_named(tmp_path: Path) -> None:
    log = tmp_path / "server.log.bz2"
    log.write_bytes(bz2.compress(FAILURE))
    done = call("explain", str(log))
    assert done.code == 3
    assert "compressed with bzip2" in done.err and "bzcat LOG | vllm-eagle3-patch" in done.err


def test_a_gzip_bomb_costs_no_memory() -> None:
    packed = gzip.compress(b"x" * (200 << 20))
    scanner = Scanner()
    tracemalloc.start()
    scanner.feed(packed)
    scanner.finish()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 24 << 20


def _unpack(data: bytes, piece: int) -> bytes:
    decoder = Decoder()
    found = [b"".join(decoder.feed(data[i : i + piece])) for i in range(0, len(data), piece)]
    return b"".join([*found, *decoder.finish()])


@given(st.binary(max_size=200), st.integers(1, 50))
def test_any_bytes(data: bytes, piece: int) -> None:
    with contextlib.suppress(RefusedError):
        _unpack(data, piece)


@given(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=4), st.integers(1, 9)
)
def test_any_text(text: str, piece: int) -> None:
    encodings: list[Callable[[str], bytes]] = [
        lambda t: t.encode("utf-16"),
        lambda t: gzip.compress(t.encode("utf-16")),
    ]
    for encode in encodings:
        assert _unpack(encode(text), piece) == text.encode().removeprefix(codecs.BOM_UTF8)
