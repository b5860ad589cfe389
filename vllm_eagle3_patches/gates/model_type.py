"""Gate `model-type`: the target's model_type must be in SpeculativeConfig's list.

`SpeculativeConfig` tests `any(s in hf_text_config.model_type for s in LIST)`: a substring test.
The list is `eagle3_target_supported` (0.10.1-0.16.0) or `aux_hidden_states_supported`
(0.17.0-0.21.0), in `vllm/config/__init__.py` (to 0.10.2) or `vllm/config/speculative.py`;
0.22.0 removed it (PR 42536).
"""

from __future__ import annotations

import ast
from functools import lru_cache

from vllm_eagle3_patches.gates.base import Edit, Finding, State
from vllm_eagle3_patches.sources import ClassSite, Sources
from vllm_eagle3_patches.target import Target

NAME = "model-type"
CLASS = "SpeculativeConfig"
PATHS = ("vllm/config/speculative.py", "vllm/config/__init__.py")
LISTS = ("eagle3_target_supported", "aux_hidden_states_supported")
# The entries upstream added in 0.18.0 for DeepSeek and Kimi.
MODEL_TYPES = ("deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_k25")


@lru_cache(maxsize=8)
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


@lru_cache(maxsize=8)
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


def _site(sources: Sources) -> ClassSite | None:
    for path in PATHS:
        if sources.exists(path):
            for statement in sources.tree(path).body:
                if isinstance(statement, ast.ClassDef) and statement.name == CLASS:
                    return ClassSite(path, statement)
    return None


def inspect(sources: Sources, target: Target) -> Finding:
    site = _site(sources)
    if site is None:
        return Finding(NAME, State.REFUSED, PATHS[0], None, f"no class {CLASS} found")
    node = find_list(site.node)
    if node is None:
        line = _mention(site.node)
        if line is not None:
            detail = "the model-type check has a form this tool does not know"
            return Finding(NAME, State.REFUSED, site.path, line, detail)
        return Finding(NAME, State.NATIVE, site.path, site.line, "no list of model types any more")
    listed = entries(node) or []
    wanted = target.model_type
    if wanted is None:
        detail = f"model_type of {target.architecture} is not known; give its config.json"
        return Finding(NAME, State.REFUSED, site.path, node.lineno, detail)
    hit = next((entry for entry in listed if entry in wanted), None)
    if hit is not None:
        return Finding(NAME, State.NATIVE, site.path, node.lineno, f"{wanted!r} matches {hit!r}")
    return Finding(NAME, State.CLOSED, site.path, node.lineno, f"{wanted!r} is not in the list")


def edits(sources: Sources, target: Target) -> list[Edit]:
    site = _site(sources)
    if site is None or target.model_type is None:
        return []
    types = MODEL_TYPES if any(t in target.model_type for t in MODEL_TYPES) else ()
    arguments = {"types": ",".join(types or (target.model_type,))}
    return [Edit(NAME, NAME, site.path, (CLASS,), "model_type", arguments)]
