"""Gate `model-type`: the target's model_type must be in SpeculativeConfig's list.

`SpeculativeConfig` tests `any(s in hf_text_config.model_type for s in LIST)`: a substring test.
The list is `eagle3_target_supported` (0.10.1-0.16.0) or `aux_hidden_states_supported`
(0.17.0-0.21.0), in `vllm/config/__init__.py` (to 0.10.2) or `vllm/config/speculative.py`;
0.22.0 removed it (PR 42536).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from vllm_eagle3_patches.gates.base import Edit, Finding, State
from vllm_eagle3_patches.sources import Sources, parse
from vllm_eagle3_patches.target import Target

NAME = "model-type"
CLASS = "SpeculativeConfig"
PATHS = ("vllm/config/speculative.py", "vllm/config/__init__.py")
LISTS = ("eagle3_target_supported", "aux_hidden_states_supported")
# The entries upstream added in 0.18.0 for DeepSeek and Kimi.
MODEL_TYPES = ("deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25")


def find_list(cls: ast.ClassDef) -> ast.Assign | None:
    """The assignment of the list, if a generator over it tests a model_type."""
    used = {
        generator.iter.id
        for node in ast.walk(cls)
        if isinstance(node, ast.GeneratorExp) and "model_type" in ast.dump(node.elt)
        for generator in node.generators
        if isinstance(generator.iter, ast.Name)
    }
    for node in ast.walk(cls):
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id in LISTS
            and node.targets[0].id in used
            and entries(node) is not None
        ):
            return node
    return None


def _mention(cls: ast.ClassDef) -> int | None:
    """The line of the first trace of such a list."""
    for node in ast.walk(cls):
        named = isinstance(node, ast.Name) and node.id in LISTS
        said = isinstance(node, ast.Constant) and "is only supported for" in str(node.value)
        if named or said:
            return int(getattr(node, "lineno"))  # noqa: B009
    return None


def entries(node: ast.Assign) -> list[str] | None:
    """The strings of the list, or None if it is not a list of plain strings."""
    if not isinstance(node.value, ast.List):
        return None
    values = [e.value for e in node.value.elts if isinstance(e, ast.Constant)]
    if len(values) != len(node.value.elts):
        return None
    return [v for v in values if isinstance(v, str)]


@dataclass(frozen=True)
class _Test:
    """What SpeculativeConfig asks of a model_type.

    Attributes:
        path: the file, relative.
        line: that of the class.
        node: the assignment of the list, or None.
        mention: the line of the first trace of one.
    """

    path: str
    line: int
    node: ast.Assign | None
    mention: int | None


def _test(sources: Sources) -> _Test | None:
    """The test in the class that is there; None where there is no such class."""
    found = (_read(sources.data(p), p, sources.root) for p in PATHS if sources.exists(p))
    return next((test for test in found if test is not None), None)


@lru_cache(maxsize=8)  # the tree is large, and needed for nothing else
def _read(data: bytes, path: str, root: Path) -> _Test | None:
    for cls in parse(data, path, root, keep=False).body:
        if isinstance(cls, ast.ClassDef) and cls.name == CLASS:
            return _Test(path, cls.lineno, find_list(cls), _mention(cls))
    return None


def inspect(sources: Sources, target: Target) -> Finding:
    test = _test(sources)
    if test is None:
        return Finding(NAME, State.REFUSED, PATHS[0], None, f"no class {CLASS} found")
    node = test.node
    if node is None:
        if test.mention is not None:
            detail = "the model-type check has a form this tool does not know"
            return Finding(NAME, State.REFUSED, test.path, test.mention, detail)
        return Finding(NAME, State.NATIVE, test.path, test.line, "no list of model types any more")
    listed = entries(node) or []
    wanted = _types(sources, target)
    if not wanted and any(structure.by_config for structure in target.structures):
        detail = "the config names the language model; give its folder to --model"
        return Finding(NAME, State.NOT_APPLICABLE, test.path, node.lineno, detail)
    if not wanted:
        detail = (
            f"which model_type {target.architecture} has in its config.json is not known; "
            "give its folder to --model"
        )
        return Finding(NAME, State.REFUSED, test.path, node.lineno, detail)
    for model_type in wanted:
        hit = next((entry for entry in listed if entry in model_type), None)
        if hit is None:
            detail = f"{model_type!r} is not in the list"
            return Finding(NAME, State.CLOSED, test.path, node.lineno, detail)
    return Finding(NAME, State.NATIVE, test.path, node.lineno, f"{wanted[-1]!r} matches {hit!r}")


def _types(sources: Sources, target: Target) -> tuple[str, ...]:
    """The model types a checkpoint of the target may have: its config's, or those known."""
    if target.model_type is not None:
        return (target.model_type,)
    from vllm_eagle3_patches import model_types  # most releases have no list

    return model_types.of_architecture(sources, target.architecture)


def edits(sources: Sources, target: Target) -> list[Edit]:
    test = _test(sources)
    wanted = _types(sources, target) if test is not None else ()
    if test is None or not wanted:
        return []
    if any(ours in model_type for ours in MODEL_TYPES for model_type in wanted):
        wanted = MODEL_TYPES
    return [Edit(NAME, NAME, test.path, (CLASS,), "model_type", {"types": ",".join(wanted)})]
