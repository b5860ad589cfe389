"""The JSON record of what was applied, with the original bytes, inside the vLLM dist-info.

RECORD lists it, so it goes when the wheel goes. While files are being changed it holds what
has to be put back, as `pending`: a receipt found with that is the mark of an interrupted run.
"""

from __future__ import annotations

import binascii
import json
import os
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal, NoReturn, TypeVar, cast

from vllm_eagle3_patches.errors import IntegrityError
from vllm_eagle3_patches.sources import sha256

RECEIPT = "eagle3-patch.json"

_SCHEMA = 1
_LARGEST = 64 << 20  # of one unpacked file: a garbled length must not fill the memory
_SHA256 = re.compile(r"[0-9a-f]{64}")
_VERSION = re.compile(r"[0-9A-Za-z.+!_-]{1,64}")

_T = TypeVar("_T")


@dataclass(frozen=True)
class PatchedFile:
    """One file that was changed, and how it was installed.

    Attributes:
        path: "vllm/…", relative to the folder that holds the package.
        before: sha256 of `original`.
        after: sha256 of the file as we wrote it.
        original: the bytes that were installed.
        mode: its permission bits as installed.
        link: the text of the symlink it was installed as, or None for a regular file.
    """

    path: str
    before: str
    after: str
    original: bytes
    mode: int
    link: str | None = None

    def __post_init__(self) -> None:
        """Raises ValueError: a value that no such file can have."""
        _check_path(self.path)
        _check_digest(self.path, self.after)
        _check_mode_and_link(self.path, self.mode, self.link)
        if sha256(self.original) != self.before:
            raise ValueError(f"the original of {self.path} does not have the hash in `before`")


@dataclass(frozen=True)
class Pending:
    """One file that an unfinished run changes, and how it was before that run.

    Attributes:
        path: "vllm/…", or RECEIPT for the receipt itself.
        previous: its bytes before the run, or None where there was no such file.
        mode: its permission bits before the run.
        link: the text of the symlink it was, or None.
        next: sha256 of what the run writes there, or None where it removes the file.
    """

    path: str
    previous: bytes | None
    mode: int
    link: str | None
    next: str | None

    def __post_init__(self) -> None:
        """Raises ValueError: a value that no such file can have."""
        if self.path != RECEIPT:
            _check_path(self.path)
        if self.next is not None:
            _check_digest(self.path, self.next)
        _check_mode_and_link(self.path, self.mode, self.link)


@dataclass(frozen=True)
class Receipt:
    """What one installation was given.

    Attributes:
        tool_version: version of this tool that wrote it.
        vllm_version: version in the metadata of the installation.
        distribution: its name there.
        targets: the architectures that EAGLE-3 was given to.
        source: where the edits came from.
        edits: names of the edits applied.
        files: every file that differs from what was installed.
        pending: not empty while a run is unfinished. One entry is then the receipt as it was
            before that run, `files` is empty, and the rest describes what the run is about.
    """

    tool_version: str
    vllm_version: str
    distribution: str
    targets: tuple[str, ...]
    source: Literal["series", "codemod"]
    edits: tuple[str, ...]
    files: tuple[PatchedFile, ...]
    pending: tuple[Pending, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError: text that cannot be printed, a path twice, no receipt in pending."""
        words = (self.tool_version, self.vllm_version, self.distribution)
        for text in (*words, *self.targets, *self.edits):
            if not text.isprintable():
                raise ValueError(f"{text!a} holds characters that cannot be printed")
        if self.source not in ("series", "codemod"):
            raise ValueError(f"the source is {self.source!a}, not series or codemod")
        for paths in ([f.path for f in self.files], [p.path for p in self.pending]):
            if len(set(paths)) != len(paths):
                raise ValueError("a path is named twice")
        if self.pending and RECEIPT not in {entry.path for entry in self.pending}:
            raise ValueError(f"pending does not hold {RECEIPT}")


def dump(receipt: Receipt) -> bytes:
    """The file's content; the same bytes for equal receipts."""
    content = {"schema": _SCHEMA, **_row(receipt)}
    content["files"] = [_row(file) for file in receipt.files]
    content["pending"] = [_row(entry) for entry in receipt.pending]
    return (json.dumps(content, indent=1, sort_keys=True) + "\n").encode()


def load(path: Path) -> Receipt | None:
    """The receipt in this file; None when there is no such file.

    Raises:
        IntegrityError: it cannot be read, is garbled, contradicts itself, names a path outside
            the package, or a newer version of this tool wrote it.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _damaged(path, f"cannot be read ({error.strerror})")
    try:
        content = _mapping(json.loads(data))
        schema = _value(content, "schema", int)
        if schema <= _SCHEMA:
            return _receipt(content)
    except (ValueError, zlib.error, RecursionError) as error:
        _damaged(path, f"is garbled ({str(error)[:200]})")
    version = content.get("tool_version")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        version = "of unknown number"
    raise IntegrityError(
        f"{RECEIPT} was written by a newer vllm-eagle3-patches, {version} (schema {schema}; "
        f"this one reads {_SCHEMA})",
        where=path,
        next="upgrade vllm-eagle3-patches, and run the command again",
    )


def _receipt(content: dict[str, object]) -> Receipt:
    """Raises ValueError or zlib.error: not what `dump` writes."""
    if _value(content, "schema", int) != _SCHEMA:
        raise ValueError("there is no such schema")
    _exactly(content, {"schema", *(field.name for field in fields(Receipt))})
    return Receipt(
        tool_version=_value(content, "tool_version", str),
        vllm_version=_value(content, "vllm_version", str),
        distribution=_value(content, "distribution", str),
        targets=_texts(content, "targets"),
        source=cast(Literal["series", "codemod"], _value(content, "source", str)),
        edits=_texts(content, "edits"),
        files=_rows(content, "files", _patched_file),
        pending=_rows(content, "pending", _pending),
    )


def _patched_file(row: dict[str, object]) -> PatchedFile:
    _exactly(row, {field.name for field in fields(PatchedFile)})
    return PatchedFile(
        path=_value(row, "path", str),
        before=_value(row, "before", str),
        after=_value(row, "after", str),
        original=_unpacked(_value(row, "original", str)),
        mode=_value(row, "mode", int),
        link=_optional(row, "link"),
    )


def _pending(row: dict[str, object]) -> Pending:
    _exactly(row, {field.name for field in fields(Pending)})
    previous = _optional(row, "previous")
    return Pending(
        path=_value(row, "path", str),
        previous=None if previous is None else _unpacked(previous),
        mode=_value(row, "mode", int),
        link=_optional(row, "link"),
        next=_optional(row, "next"),
    )


def _row(thing: PatchedFile | Pending | Receipt) -> dict[str, object]:
    row = {field.name: getattr(thing, field.name) for field in fields(thing)}
    return {key: _packed(v) if isinstance(v, bytes) else v for key, v in row.items()}


def _packed(data: bytes) -> str:
    return binascii.b2a_base64(zlib.compress(data), newline=False).decode("ascii")


def _unpacked(text: str) -> bytes:
    stream = zlib.decompressobj()
    data = stream.decompress(binascii.a2b_base64(text), _LARGEST)
    if not stream.eof:
        raise ValueError("packed bytes are cut off, or too many")
    return data


def _mapping(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError("there is no object where one belongs")
    return value


def _exactly(row: dict[str, object], keys: set[str]) -> None:
    if row.keys() != keys:
        raise ValueError(f"not the right keys: {', '.join(sorted(row.keys() ^ keys))!a}")


def _value(row: dict[str, object], key: str, kind: type[_T]) -> _T:
    value = row.get(key)
    if type(value) is not kind:  # True is no int here
        raise ValueError(f"{key} is not of type {kind.__name__}")
    return value


def _optional(row: dict[str, object], key: str) -> str | None:
    return None if row[key] is None else _value(row, key, str)


def _texts(row: dict[str, object], key: str) -> tuple[str, ...]:
    return tuple(_value({key: item}, key, str) for item in _value(row, key, list))


def _rows(
    row: dict[str, object], key: str, read: Callable[[dict[str, object]], _T]
) -> tuple[_T, ...]:
    return tuple(read(_mapping(item)) for item in _value(row, key, list))


def _check_path(path: str) -> None:
    first, *others = path.split("/")
    if first != "vllm" or not others or not {"", ".", ".."}.isdisjoint(others):
        raise ValueError(f"{path!a} is not a path inside the vllm package")
    if "\\" in path or not path.isprintable():
        raise ValueError(f"{path!a} is not a plain path")


def _check_digest(path: str, digest: str) -> None:
    if not _SHA256.fullmatch(digest):
        raise ValueError(f"{digest!a} is not a sha256 ({path})")


def _check_mode_and_link(path: str, mode: int, link: str | None) -> None:
    if not 0 <= mode <= 0o7777:
        raise ValueError(f"{mode} is not a file mode ({path})")
    if link is not None and (not link or "\0" in link):
        raise ValueError(f"{link!a} is not the text of a link ({path})")
    os.fsencode(link or "")  # UnicodeEncodeError, a ValueError: a lone surrogate


def _damaged(path: Path, what: str) -> NoReturn:
    name, _, version = path.parent.name.removesuffix(".dist-info").partition("-")
    raise IntegrityError(
        f"{RECEIPT} {what}",
        where=path,
        next=f"pip install --force-reinstall --no-deps {name}=={version}",
    ) from None
