"""Gate `weight-sharing`: the drafter shares `.model.embed_tokens` and `.lm_head` of the target.

`load_model` takes both from `target_model.get_language_model()`.  Kimi-K2.5 of 0.15.x returns a
bare `DeepseekV2Model` there, which has neither; the wrapper itself holds the `lm_head`.
"""

from __future__ import annotations

import ast

from vllm_eagle3_patches.gates import proposer
from vllm_eagle3_patches.gates.base import Edit, Finding, State
from vllm_eagle3_patches.sources import ClassSite, Sources, bases
from vllm_eagle3_patches.target import Target

NAME = "weight-sharing"
LANGUAGE_MODEL = "target_language_model = target_model.get_language_model()"
BARE = (
    "target_language_model = SimpleNamespace("
    "model=target_language_model, lm_head=target_model.lm_head)"
)


def follows(method: ast.FunctionDef) -> tuple[ast.stmt, ast.stmt | None] | None:
    """The statement that takes the language model, and the one after it."""
    for node in ast.walk(method):
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if not isinstance(body, list):
                continue
            for index, statement in enumerate(body):
                if isinstance(statement, ast.Assign) and ast.unparse(statement) == LANGUAGE_MODEL:
                    return statement, body[index + 1] if index + 1 < len(body) else None
    return None


def handles_bare(statement: ast.stmt | None) -> bool:
    """Whether this is our branch for a language model that is a bare decoder."""
    return (
        isinstance(statement, ast.If)
        and ast.unparse(statement.test) == "not hasattr(target_language_model, 'model')"
        and [ast.unparse(s) for s in statement.body] == [BARE]
    )


def _sets(sources: Sources, site: ClassSite, attribute: str) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == attribute
        and isinstance(node.ctx, ast.Store)
        for owner in bases(sources, site)
        if (init := owner.method("__init__")) is not None
        for node in ast.walk(init)
    )


def inspect(sources: Sources, target: Target) -> Finding:
    for structure in target.structures:
        decoder = structure.decoder
        if not _sets(sources, decoder, "embed_tokens"):
            detail = f"{decoder.name} has no `embed_tokens` for the drafter to share"
            return Finding(NAME, State.REFUSED, decoder.path, decoder.line, detail)
    if all(structure.causal is not None for structure in target.structures):
        causal = next(s.causal for s in target.structures if s.causal is not None)
        detail = f"{causal.name} has `.model.embed_tokens` and `.lm_head`"
        return Finding(NAME, State.NATIVE, causal.path, causal.line, detail)
    top = target.structures[0].top
    if not _sets(sources, top, "lm_head"):
        detail = f"neither {top.name} nor its language model has an `lm_head`"
        return Finding(NAME, State.REFUSED, top.path, top.line, detail)
    loader = proposer.find(sources)
    found = follows(loader.method)
    if found is None:
        detail = "the loader takes the language model in a form this tool does not know"
        return Finding(NAME, State.REFUSED, loader.site.path, loader.method.lineno, detail)
    statement, after = found
    if handles_bare(after):
        detail = "the loader takes a bare decoder and the wrapper's lm_head"
        return Finding(NAME, State.NATIVE, loader.site.path, statement.lineno, detail)
    bare = target.structures[0].decoder.name
    detail = f"the language model is a bare {bare}: no `.model`, no `.lm_head`"
    return Finding(NAME, State.CLOSED, loader.site.path, statement.lineno, detail)


def edits(sources: Sources, target: Target) -> list[Edit]:
    if all(structure.causal is not None for structure in target.structures):
        return []
    loader = proposer.find(sources)
    arguments = {"cls": loader.site.name}
    return [Edit(NAME, NAME, loader.site.path, (loader.site.name,), "weight_sharing", arguments)]
