"""Model folders on disk: config.json, and safetensors files with a header and a hole for data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path

from preflight.published import Config, Shapes

SIZES = {"BF16": 2, "F32": 4, "I64": 8, "BOOL": 1, "U8": 1}


def _dtype(name: str) -> str:
    return {"d2t": "I64", "t2d": "BOOL"}.get(name, "BF16")


def header(shapes: Shapes, dtypes: Mapping[str, str] | None = None) -> tuple[bytes, int]:
    """The head of a safetensors file, and how many bytes of data follow it."""
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        dtype = (dtypes or {}).get(name, _dtype(name))
        end = offset + math.prod(shape) * SIZES[dtype]
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text, offset


def write_tensors(path: Path, shapes: Shapes, dtypes: Mapping[str, str] | None = None) -> None:
    """A file of the right size whose data is never written (a sparse file)."""
    head, data = header(shapes, dtypes)
    with path.open("wb") as file:
        file.write(head)
        file.truncate(len(head) + data)


def write_model(folder: Path, config: Config, shapes: Shapes | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    if shapes is not None:
        write_tensors(folder / "model.safetensors", shapes)
    return folder
