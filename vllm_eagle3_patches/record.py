"""Reads a dist-info RECORD, and says how its bytes look with a row more or a row less.

RECORD is what an installer wrote down of a distribution: one CSV row (path, hash, size) for
each file. pip ends its rows with CRLF, uv with LF; both quote paths that hold a comma. Nothing
here writes a file.
"""

from __future__ import annotations

import base64
import csv
from dataclasses import dataclass, field
from pathlib import Path

from vllm_eagle3_patches.errors import IntegrityError


@dataclass(frozen=True)
class Record:
    """One RECORD, built by `read` or `parse`.

    Attributes:
        path: the file it was read from; used in messages only.
        data: its exact bytes.
    """

    path: Path
    data: bytes
    _hashes: dict[str, str] = field(repr=False, compare=False)

    @classmethod
    def read(cls, path: Path) -> Record:
        """The RECORD at `path`.

        Raises:
            IntegrityError: it is missing or cannot be read, and as `parse` does.
        """
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise _damaged(path, "is missing") from None
        except OSError as error:
            raise _damaged(path, f"cannot be read ({error.strerror})") from None
        return cls.parse(data, path)

    @classmethod
    def parse(cls, data: bytes, path: Path) -> Record:
        """The RECORD with these bytes; blank lines in it count for nothing.

        Raises:
            IntegrityError: not UTF-8, not CSV with three columns, or one path stands in two
                rows with different hashes.
        """
        hashes: dict[str, str] = {}
        try:
            reader = csv.reader(_lines(data), strict=True)
            for row in reader:
                if not row:
                    continue
                if len(row) != 3:
                    raise _damaged(
                        path, f"is garbled (line {reader.line_num}: {len(row)} columns, not 3)"
                    )
                relative, digest, _ = row
                if hashes.setdefault(relative, digest) != digest:
                    raise _damaged(path, f"lists {relative} twice, with different hashes")
        except UnicodeDecodeError as error:
            raise _damaged(path, f"is garbled (byte {error.start} is not UTF-8)") from None
        except csv.Error as error:
            raise _damaged(path, f"is garbled (line {reader.line_num}: {error})") from None
        return cls(path, data, hashes)

    def owns(self, relative: str) -> bool:
        """Whether a row names exactly this path."""
        return relative in self._hashes

    def sha256(self, relative: str) -> str | None:
        """Hex sha256 of the file as it was installed.

        None when no row names it, or its row has no hash or one of another algorithm.

        Raises:
            IntegrityError: the row's hash is not the base64 of 32 bytes.
        """
        algorithm, _, value = self._hashes.get(relative, "").partition("=")
        if algorithm != "sha256":
            return None
        try:
            digest = base64.b64decode(value + "=" * (-len(value) % 4), b"-_", validate=True)
        except ValueError:
            digest = b""
        if len(digest) != 32:
            raise _damaged(self.path, f"is garbled (the hash of {relative} is no sha256)")
        return digest.hex()

    def with_row(self, relative: str) -> bytes:
        """These bytes with the row `relative,,` at the end; as they are when it `owns` it.

        The row ends as the last line ends; where the last line has no end, neither has the
        row, so that `without_row` can tell and gives these bytes back.
        """
        if self.owns(relative):
            return self.data
        row = _quoted(relative) + ",,"
        lines = _lines(self.data)
        ends = [end for line in lines[-2:] if (end := _end(line))]
        end = ends[-1] if ends else "\n"
        added = row + end if not lines or _end(lines[-1]) else end + row
        return self.data + added.encode()

    def without_row(self, relative: str) -> bytes:
        """These bytes less the rows `relative,,`, wherever they stand.

        A row of that path which has a hash or a size is not one that `with_row` wrote: it stays.
        """
        if not self.owns(relative):
            return self.data
        lines = _lines(self.data)
        kept: list[str] = []
        start = 0
        reader = csv.reader(lines, strict=True)
        for row in reader:
            if row != [relative, "", ""]:
                kept += lines[start : reader.line_num]
            start = reader.line_num
        if kept and not _end(lines[-1]):
            kept[-1] = kept[-1].removesuffix(_end(kept[-1]))
        return "".join(kept).encode()


def _lines(data: bytes) -> list[str]:
    """Its lines with their ends, whichever of CRLF, LF and CR these are."""
    data.decode()  # names the bad byte, where there is one
    return [line.decode() for line in data.splitlines(keepends=True)]


def _end(line: str) -> str:
    return line[len(line.rstrip("\r\n")) :]


def _quoted(relative: str) -> str:
    if any(character in relative for character in ',"\r\n'):
        return '"' + relative.replace('"', '""') + '"'
    return relative


def _damaged(path: Path, what: str) -> IntegrityError:
    name, _, version = path.parent.name.removesuffix(".dist-info").partition("-")
    return IntegrityError(
        f"RECORD {what}",
        where=path,
        next=f"pip install --force-reinstall --no-deps {name}=={version}",
    )
