"""Where the V1 runner's drafter loader is: the proposer class, shared by three gates."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.sources import ClassSite, Sources, parse

# From 0.20.0 the loader moved to llm_base_proposer.py; class EagleProposer to 0.14.1,
# SpecDecodeBaseProposer from 0.15.0.
PATHS = ("vllm/v1/spec_decode/llm_base_proposer.py", "vllm/v1/spec_decode/eagle.py")


@dataclass(frozen=True)
class Loader:
    """`load_model` of the proposer.

    Attributes:
        path: the file, relative.
        cls: the proposer's class.
        method: its `load_model`.
        accepted: the EAGLE-3 classes that an `assert isinstance(self.model, ...)` of the class
            names, None without one.
    """

    path: str
    cls: str
    method: ast.FunctionDef
    accepted: frozenset[str] | None


def find(sources: Sources) -> Loader:
    """The class whose `load_model(self, target_model)` loads the drafter.

    Raises:
        RefusedError: there is no such method.
    """
    for path in PATHS:
        loader = _loader(sources.data(path), path, sources.root) if sources.exists(path) else None
        if loader is not None:
            return loader
    raise RefusedError("no proposer with load_model(target_model) found", where=PATHS[1])


@lru_cache(maxsize=8)  # the tree is large, and needed for nothing else
def _loader(data: bytes, path: str, root: Path) -> Loader | None:
    for cls in parse(data, path, root, keep=False).body:
        if isinstance(cls, ast.ClassDef):
            method = ClassSite(path, cls).method("load_model")
            if method is not None and [a.arg for a in method.args.args][1:2] == ["target_model"]:
                return Loader(path, cls.name, method, _accepted(cls))
    return None


def _accepted(cls: ast.ClassDef) -> frozenset[str] | None:
    names = {
        name.id
        for node in ast.walk(cls)
        if isinstance(node, ast.Assert)
        for name in ast.walk(node.test)
        if isinstance(name, ast.Name) and name.id.startswith("Eagle3")
    }
    return frozenset(names) or None
