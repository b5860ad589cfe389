"""vLLM's `SpeculativeConfig`, read as text: its fields and the methods it knows."""

from __future__ import annotations

import ast

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.drafter import SPECULATIVE
from vllm_eagle3_patches.sources import Sources

CLASS = "SpeculativeConfig"


def _path(sources: Sources) -> str | None:
    return next((p for p in SPECULATIVE if f"class {CLASS}" in snippets.text(sources, p)), None)


def fields(sources: Sources) -> frozenset[str]:
    """The names of the fields of `SpeculativeConfig`."""
    path = _path(sources)
    return frozenset(
        field.target.id
        for statement in (sources.tree(path).body if path else ())
        if isinstance(statement, ast.ClassDef) and statement.name == CLASS
        for field in statement.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    )


def methods(sources: Sources) -> frozenset[str]:
    """The names of speculative methods: the strings of the `Literal` types above the class."""
    path = _path(sources)
    return frozenset(
        text
        for statement in (sources.tree(path).body if path else ())
        if isinstance(statement, ast.Assign) and ast.unparse(statement.value).startswith("Literal[")
        for text in snippets.strings(statement.value)
    )
