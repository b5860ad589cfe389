"""Gate `weight-sharing`: the drafter shares `.model.embed_tokens` and `.lm_head` of the target.

`load_model` takes both from `target_model.get_language_model()`.  Kimi-K2.5 of 0.15.x returns a
bare `DeepseekV2Model` there, which has neither; the wrapper itself holds the `lm_head`.
"""

from __future__ import annotations

import ast

from vllm_eagle3_patches.decoder import find_loop, forward_with_loop
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates import proposer
from vllm_eagle3_patches.gates.base import Edit, Finding, State
from vllm_eagle3_patches.gates.protocol import claims
from vllm_eagle3_patches.sources import ClassSite, Sources, bases
from vllm_eagle3_patches.structure import Structure, owner_of
from vllm_eagle3_patches.target import Target

NAME = "weight-sharing"
EMBEDDINGS = ("embed_tokens", "embedding")  # what the loader looks for, 0.11.0 on
LANGUAGE_MODEL = (
    "target_language_model = target_model.get_language_model()",
    "target_language_model = cast(SupportsMultiModal, target_model).get_language_model()",
)
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
                if isinstance(statement, ast.Assign) and ast.unparse(statement) in LANGUAGE_MODEL:
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


def _heads(sources: Sources, structure: Structure) -> dict[str, dict[str, str]]:
    """What aliases would make `.model`, `embed_tokens`, `layers` and `lm_head` reachable:
    class -> name -> expression.

    Raises:
        RefusedError: embedding or head is not recognised.
    """
    causal, decoder = structure.causal, structure.decoder
    assert causal is not None and decoder is not None
    found: dict[str, dict[str, str]] = {causal.name: {}, decoder.name: {}}
    if structure.inner != "model":
        found[causal.name]["model"] = f"self.{structure.inner}"
    if not any(_sets(sources, decoder, name) for name in EMBEDDINGS):
        name = _made_by(sources, decoder, "VocabParallelEmbedding")
        found[decoder.name]["embed_tokens"] = f"self.{name}"
    if not _sets(sources, decoder, "layers"):
        loop = forward_with_loop(sources, decoder)
        if loop is not None:
            found[decoder.name]["layers"] = f"self.{find_loop(loop[1]).container}"
    if not _sets(sources, causal, "lm_head"):
        found[causal.name]["lm_head"] = _head(sources, causal)
    return {cls: aliases for cls, aliases in found.items() if aliases}


def _made_by(sources: Sources, site: ClassSite, cls: str) -> str:
    """The attribute that holds the one `cls(...)` the class makes."""
    names = {
        target.attr
        for owner in bases(sources, site)
        if (init := owner.method("__init__")) is not None
        for node in ast.walk(init)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == cls
        for target in node.targets
        if isinstance(target, ast.Attribute)
    }
    if len(names) != 1:
        raise RefusedError(f"{site.name} makes {len(names)} {cls}, not one", where=site.path)
    return names.pop()


def _head(sources: Sources, causal: ClassSite) -> str:
    """The head `compute_logits` hands to the logits processor."""
    owner = owner_of(sources, causal, "compute_logits")
    method = owner.method("compute_logits") if owner else None
    heads = {
        ast.unparse(node.args[0])
        for node in (ast.walk(method) if method else ())
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "self.logits_processor"
        and node.args
    }
    heads = {head for head in heads if not head.endswith(".base_layer")}
    if len(heads) != 1 or not next(iter(heads)).startswith("self."):
        raise RefusedError(f"{causal.name} has no lm_head that can be named", where=causal.path)
    return heads.pop()


def inspect(sources: Sources, target: Target) -> Finding:
    found = [_inspect(sources, target, structure) for structure in target.structures]
    order = (State.REFUSED, State.CLOSED, State.NATIVE, State.NOT_APPLICABLE)
    return min(found, key=lambda finding: order.index(finding.state))


def _inspect(sources: Sources, target: Target, structure: Structure) -> Finding:
    causal, decoder, top = structure.causal, structure.decoder, structure.top
    if structure.unread:
        state = State.NATIVE if claims(sources, top) else State.REFUSED
        return Finding(NAME, state, top.path, top.line, f"not read: {structure.unread}")
    if decoder is None:
        detail = "the config names the language model; give its folder to --model"
        return Finding(NAME, State.NOT_APPLICABLE, top.path, top.line, detail)
    if causal is not None:
        aliases = _heads(sources, structure)
        missing = {
            f"{cls}.{name}"
            for cls, names in aliases.items()
            for name in names
            if not _has_property(sources, causal if cls == causal.name else decoder, name)
        }
        if missing:
            detail = f"the drafter loader finds no {', '.join(sorted(missing))}"
            return Finding(NAME, State.CLOSED, causal.path, causal.line, detail)
        detail = f"{causal.name} has `.model.embed_tokens` and `.lm_head`"
        return Finding(NAME, State.NATIVE, causal.path, causal.line, detail)
    if not _sets(sources, decoder, "embed_tokens"):
        detail = f"{decoder.name} has no `embed_tokens` for the drafter to share"
        return Finding(NAME, State.REFUSED, decoder.path, decoder.line, detail)
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
    detail = f"the language model is a bare {decoder.name}: no `.model`, no `.lm_head`"
    return Finding(NAME, State.CLOSED, loader.site.path, statement.lineno, detail)


def _has_property(sources: Sources, site: ClassSite, name: str) -> bool:
    return any(owner.method(name) for owner in bases(sources, site))


def edits(sources: Sources, target: Target) -> list[Edit]:
    found: list[Edit] = []
    for structure in target.structures:
        if structure.decoder is None:
            continue
        if structure.causal is None:
            loader = proposer.find(sources)
            arguments = {"cls": loader.site.name}
            found.append(
                Edit(NAME, NAME, loader.site.path, (loader.site.name,), "weight_sharing", arguments)
            )
            continue
        for cls, aliases in _heads(sources, structure).items():
            site = structure.causal if cls == structure.causal.name else structure.decoder
            arguments = {"cls": site.name, **aliases}
            found.append(Edit("aliases", NAME, site.path, (site.name,), "aliases", arguments))
    return [edit for i, edit in enumerate(found) if edit not in found[:i]]
