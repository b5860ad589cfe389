"""vLLM's model registry, read as text: architecture -> module and class.

Source: `vllm/model_executor/models/registry.py`, dictionaries `_TEXT_GENERATION_MODELS`,
`_MULTIMODAL_MODELS`, `_SPECULATIVE_DECODING_MODELS` and their like (all versions); a module name
that starts with `vllm.` is absolute (0.28.0 on), any other lies in `vllm.model_executor.models`.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.sources import ClassSite, Sources, find_classes, module_path, parse

PATH = "vllm/model_executor/models/registry.py"
SPECULATIVE = "_SPECULATIVE_DECODING_MODELS"


@dataclass(frozen=True)
class Entry:
    """One line of the registry; `table` is the dictionary it stands in."""

    architecture: str
    module: str
    cls: str
    table: str
    line: int


def read(sources: Sources) -> dict[str, Entry]:
    """All entries by architecture.

    Raises:
        RefusedError: the file holds no table of (module, class) pairs.
    """
    return _read(sources.data(PATH), sources.root)


@lru_cache(maxsize=8)  # the tree is large, and needed for nothing else
def _read(data: bytes, root: Path) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for statement in parse(data, PATH, root, keep=False).body:
        if isinstance(statement, ast.Assign):
            target, value = statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            target, value = statement.target, statement.value
        else:
            continue
        if not isinstance(target, ast.Name) or not isinstance(value, ast.Dict):
            continue
        for key, item in zip(value.keys, value.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(item, ast.Tuple):
                continue
            pair = [e.value for e in item.elts if isinstance(e, ast.Constant)]
            if len(pair) == 2 and all(isinstance(part, str) for part in [key.value, *pair]):
                name = str(key.value)
                entries[name] = Entry(name, str(pair[0]), str(pair[1]), target.id, key.lineno)
    if not entries:
        raise RefusedError("no table of architectures found in the model registry", where=PATH)
    return entries


def classes(sources: Sources, entry: Entry) -> list[ClassSite]:
    """The class an entry names; several where the platform chooses between files.

    Raises:
        RefusedError: the module or the class is not there.
    """
    dotted = entry.module
    if not dotted.startswith("vllm."):
        dotted = f"vllm.model_executor.models.{dotted}"
    path = module_path(sources, dotted)
    found = find_classes(sources, path, entry.cls) if path else []
    if not found:
        raise RefusedError(
            f"the registry names {dotted}:{entry.cls}, which is not in the installed package",
            where=f"{PATH}:{entry.line}",
        )
    return found
