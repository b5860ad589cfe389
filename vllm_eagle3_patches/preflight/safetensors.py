"""Safetensors headers, by hand: names, shapes and types of tensors, never the data.

Format: 8 bytes of little-endian header length, a JSON object `{name: {"dtype", "shape",
"data_offsets": [begin, end]}}`, then the data; `__metadata__` is no tensor
(https://github.com/huggingface/safetensors, "Format").
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

LFS_POINTER = b"version https://git-lfs.github.com/spec/"
MAX_HEADER = 100 * 1024 * 1024  # the limit of the reference implementation


class BadFile(Exception):
    """The file cannot be a whole safetensors file; the message says why."""


@dataclass(frozen=True)
class Tensor:
    """A tensor as the header names it."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.shape))}]"


def read(path: Path) -> dict[str, Tensor]:
    """The tensors of one file.

    Raises:
        BadFile: it is an LFS pointer, cut short, or no safetensors file.
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(max(8, len(LFS_POINTER)))
        if start.startswith(LFS_POINTER):
            raise BadFile("a Git LFS pointer, not the weights")
        if len(start) < 8:
            raise BadFile(f"{size} bytes long")
        length = int.from_bytes(start[:8], "little")
        if length > MAX_HEADER:
            raise BadFile("no safetensors file: its header would be larger than any")
        if 8 + length > size:
            raise BadFile(f"cut short: {size} bytes, the header alone needs {8 + length}")
        file.seek(8)
        header = file.read(length)
    try:
        entries = json.loads(header)
        tensors = {
            name: (Tensor(tuple(map(int, entry["shape"])), str(entry["dtype"])), entry)
            for name, entry in entries.items()
            if name != "__metadata__"
        }
        end = max((int(entry["data_offsets"][1]) for _, entry in tensors.values()), default=0)
    except (ArithmeticError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BadFile("no safetensors file: its header is not as it must be") from None
    if 8 + length + end > size:
        raise BadFile(f"cut short: {size} bytes of {8 + length + end}")
    return {name: tensor for name, (tensor, _) in tensors.items()}
