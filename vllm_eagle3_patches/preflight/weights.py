"""The weight files of a drafter's folder, as vLLM's default loader picks them.

Source: `DefaultModelLoader._prepare_weights` (`vllm/model_executor/model_loader/default_loader.py`,
all versions): `*.safetensors` first, then `*.bin`, then `*.pt`; where an index exists, only the
files it names.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from vllm_eagle3_patches.preflight.safetensors import LFS_POINTER, BadFile, Tensor, read

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Weights:
    """What the folder holds.

    Attributes:
        tensors: by name; None where no safetensors header could be read.
        problems: sentences, one for each file that is missing or not whole.
        unread: the weight files whose header is not read (PyTorch's own format).
        absent: whether there is no weight file at all, not even a broken one.
    """

    tensors: dict[str, Tensor] | None
    problems: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    absent: bool = False


def look(folder: Path) -> Weights:
    """The weights in `folder`."""
    files = sorted(path.name for path in folder.glob("*.safetensors"))
    index = folder / INDEX
    if not files and not index.is_file():
        other = sorted(p.name for ending in ("*.bin", "*.pt") for p in folder.glob(ending))
        other = [name for name in other if not name.startswith(("training_args", "optimizer"))]
        if not other:
            problem = f"{folder} has no *.safetensors, *.bin or *.pt file"
            return Weights(None, (problem,), absent=True)
        pointers = [f"{name}: a Git LFS pointer" for name in other if _is_pointer(folder / name)]
        return Weights(None, tuple(pointers), tuple(other))
    problems: list[str] = []
    names = _indexed(index, problems) if index.is_file() else None
    tensors: dict[str, Tensor] = {}
    whole = True
    for name in names if names is not None else files:
        try:
            tensors.update(read(folder / name))
        except FileNotFoundError:
            problems.append(f"{name} is missing; {INDEX} names it")
            whole = False
        except (BadFile, OSError) as error:
            problems.append(f"{name}: {error}")
            whole = False
    return Weights(tensors if whole else None, tuple(problems))


def _is_pointer(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(LFS_POINTER)) == LFS_POINTER
    except OSError:
        return False


def _indexed(index: Path, problems: list[str]) -> list[str] | None:
    """The files an index names; a name that leaves the folder is a problem."""
    try:
        data = index.read_bytes()
        if data.startswith(LFS_POINTER):
            problems.append(f"{INDEX}: a Git LFS pointer, not the index")
            return None
        mapping = json.loads(data)["weight_map"]
        names = sorted(set(mapping.values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        problems.append(f"{INDEX} cannot be used: {error}")
        return None
    inside = [name for name in names if isinstance(name, str) and "/" not in name]
    if len(inside) != len(names):
        problems.append(f"{INDEX} names files outside the folder")
    return inside
