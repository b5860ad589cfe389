"""The bytes of a log file -> UTF-8, in pieces: gzip is unpacked, UTF-16 turned over.

Windows PowerShell 5 writes UTF-16 by `>` and `Tee-Object`; rotated logs are gzip files, often
several members one after the other.
"""

from __future__ import annotations

import codecs
import contextlib
import zlib
from collections.abc import Iterator

from vllm_eagle3_patches.errors import RefusedError

PIECE = 1 << 20  # bytes that are unpacked at once
SLICE = 1 << 16  # packed ones
SNIFFED = 6
GZIP = b"\x1f\x8b"
OTHERS = {
    b"\xfd7zXZ\0": ("xz", "xzcat"),
    b"BZh": ("bzip2", "bzcat"),
    b"\x28\xb5\x2f\xfd": ("zstd", "zstdcat"),
    b"PK\x03\x04": ("zip", "unzip -p"),
}


class Decoder:
    """Feed it a file's bytes from the beginning, then `finish`."""

    def __init__(self) -> None:
        self.damaged: str | None = None
        self._head: bytes | None = b""
        self._gzip: _Gunzip | None = None
        self._text = _Text()

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._head is not None:
            self._head += data
            if len(self._head) < SNIFFED:
                return
            data = self._begin()
        yield from self._unpacked(data)

    def finish(self) -> Iterator[bytes]:
        """No more will come; a gzip file that is cut short gives what it holds."""
        if self._head is not None:
            yield from self._unpacked(self._begin())
        yield from self._text.finish()

    def _begin(self) -> bytes:
        data, self._head = self._head or b"", None
        if data.startswith(GZIP):
            self._gzip = _Gunzip()
        for magic, (name, program) in OTHERS.items():
            if data.startswith(magic):
                raise RefusedError(
                    f"the log is compressed with {name}",
                    next=f"{program} LOG | vllm-eagle3-patch explain -",
                )
        return data

    def _unpacked(self, data: bytes) -> Iterator[bytes]:
        if self.damaged is not None:
            return
        if self._gzip is None:
            yield from self._text.feed(data)
            return
        try:
            for piece in self._gzip.feed(data):
                yield from self._text.feed(piece)
        except zlib.error as problem:
            self.damaged = f"its gzip data is damaged: {problem}"


class _Gunzip:
    """The members of a gzip file, one after the other."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(wbits=31)

    def feed(self, data: bytes) -> Iterator[bytes]:
        for at in range(0, len(data), SLICE):
            yield from self._slice(data[at : at + SLICE])

    def _slice(self, data: bytes) -> Iterator[bytes]:
        while data:
            before = self._member.copy()
            try:
                piece = self._member.decompress(data, PIECE)
            except zlib.error:
                self._member = before
                yield from self._bytewise(data)
                raise
            if piece:
                yield piece
            if self._member.eof:
                data = self._member.unused_data.lstrip(b"\0")
                self._member = zlib.decompressobj(wbits=31)
            else:
                data = self._member.unconsumed_tail

    def _bytewise(self, data: bytes) -> Iterator[bytes]:
        """What comes before the damage; a failing call keeps what it had unpacked to itself."""
        with contextlib.suppress(zlib.error):
            for at in range(len(data)):
                piece = self._member.decompress(data[at : at + 1])
                if piece:
                    yield piece


class _Text:
    """UTF-16 by its mark, or by the zero in every second byte of its first letters."""

    def __init__(self) -> None:
        self._head: bytes | None = b""
        self._utf16: codecs.IncrementalDecoder | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        if self._head is not None:
            self._head += data
            if len(self._head) < 4:
                return
            data, self._head = self._begin(self._head), None
        if self._utf16 is not None:
            data = self._utf16.decode(data).encode("utf-8", "replace")
        if data:
            yield data

    def finish(self) -> Iterator[bytes]:
        if self._head:
            yield self._head
        elif self._utf16 is not None:
            rest = self._utf16.decode(b"", final=True)
            if rest:
                yield rest.encode("utf-8", "replace")

    def _begin(self, head: bytes) -> bytes:
        name = None
        if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            name = "utf-16-le" if head.startswith(codecs.BOM_UTF16_LE) else "utf-16-be"
            head = head[2:]
        elif head[1:4:2] == b"\0\0" and head[0] and head[2]:
            name = "utf-16-le"
        elif head[0:3:2] == b"\0\0" and head[1] and head[3]:
            name = "utf-16-be"
        if name is not None:
            self._utf16 = codecs.getincrementaldecoder(name)(errors="replace")
        return head.removeprefix(codecs.BOM_UTF8)
