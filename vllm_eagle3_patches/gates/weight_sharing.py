"""Gate `weight-sharing`: the drafter shares `.model.embed_tokens` and `.lm_head` of the target.

`load_model` takes both from `target_model.get_language_model()`.  Kimi-K2.5 of 0.15.x returns a
bare `DeepseekV2Model` there, which has neither; the wrapper itself holds the `lm_head`.
"""

from __future__ import annotations

import ast

from vllm_eagle3_patches.decoder import find_loop, forward_with_loop
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates import proposer
from vllm_eagle3_patches.gates.base import Edit, Finding, State, worst
from vllm_eagle3_patches.protocol import claimed, claims, reaches
from vllm_eagle3_patches.sources import ClassSite, Sources, bases, owner_of, walk
from vllm_eagle3_patches.structure import Structure
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

# The V2 runner's loader of drafters (0.22.0 on, text as it stands in 0.22.0 to 0.33.0).
V2_PATH, V2_FUNCTION = "vllm/v1/worker/gpu/spec_decode/eagle/utils.py", "load_eagle_model"
INNER = "target_inner = target_language_model.model"
EITHER = "target_inner = getattr(target_language_model, 'model', target_language_model)"


def follows(method: ast.FunctionDef) -> tuple[ast.stmt, ast.stmt | None] | None:
    """The statement that takes the language model, and the one after it."""
    for node in walk(method):
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
    """Whether `__init__`, or a method that it may call (`_init_layers`), sets the attribute."""
    return any(
        _is_store(node, attribute)
        for owner in bases(sources, site)
        for method in owner.node.body
        if isinstance(method, ast.FunctionDef) and method.name.startswith("_")
        for node in walk(method)
    )


def _is_store(node: ast.AST, attribute: str) -> bool:
    """`self.x = ...`, or `self.__dict__["x"] = ...` as the codemod `head` writes it."""
    if isinstance(node, ast.Attribute):
        return node.attr == attribute and isinstance(node.ctx, ast.Store)
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
        return ast.unparse(node) == f"self.__dict__[{attribute!r}]"
    return False


def _aliases(sources: Sources, structure: Structure) -> dict[tuple[str, str], dict[str, str]]:
    """What aliases make `.model`, `embed_tokens`, `layers` and `lm_head` reachable:
    (path, class) -> name -> expression.  A bare decoder needs no `.model`, and the protocol asks
    for `layers` only where it finds the decoder by itself.

    Raises:
        RefusedError: embedding or head is not recognised.
    """
    causal, decoder = structure.causal or structure.top, structure.decoder
    assert decoder is not None
    holder = structure.outer or decoder
    own: dict[str, str] = {}
    inner: dict[str, str] = {}
    first, _, rest = structure.inner.partition(".")
    if not structure.bare and first != "model":
        own["model"] = f"self.{first}"
    if not any(_sets(sources, holder, name) for name in EMBEDDINGS):
        if structure.outer and _sets(sources, decoder, EMBEDDINGS[0]):
            inner[EMBEDDINGS[0]] = f"self.{rest}.{EMBEDDINGS[0]}"
        else:
            name = _made_by(sources, holder, "VocabParallelEmbedding")
            inner[EMBEDDINGS[0]] = f"self.{name}"
    if reaches(sources, structure) and not _sets(sources, decoder, "layers"):
        loop = forward_with_loop(sources, decoder)
        if loop is not None:
            inner["layers"] = f"self.{find_loop(loop[1]).container}"
    if not _sets(sources, causal, "lm_head"):
        own["lm_head"] = _head(sources, causal)
    found = {}
    for site, names in ((causal, own), (holder, inner)):
        names = {n: v for n, v in names.items() if not owner_of(sources, site, n)}
        if names:
            found[site.path, site.name] = names
    return found


def _head_edit(sources: Sources, causal: ClassSite, head: str) -> Edit:
    """In the class whose `__init__` makes the parts; its subclasses share what it has."""
    owner = owner_of(sources, causal, "__init__") or causal
    arguments = {"cls": owner.name, "head": head}
    return Edit("head", NAME, owner.path, (owner.name,), "head", arguments)


def _made_by(sources: Sources, site: ClassSite, cls: str) -> str:
    """The attribute that holds the one `cls(...)` the class makes."""
    names = {
        target.attr
        for owner in bases(sources, site)
        if (init := owner.method("__init__")) is not None
        for node in walk(init)
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
    """The head `compute_logits` hands to the logits processor, where no `lm_head` is set."""
    owner = owner_of(sources, causal, "compute_logits")
    method = owner.method("compute_logits") if owner else None
    heads = {
        ast.unparse(node.args[0])
        for node in (walk(method) if method else ())
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "self.logits_processor"
        and node.args
    }
    heads = {head for head in heads if not head.endswith(".base_layer")} - {"self.lm_head"}
    if len(heads) != 1 or not next(iter(heads)).startswith("self."):
        raise RefusedError(f"{causal.name} has no lm_head that can be named", where=causal.path)
    return heads.pop()


def inspect(sources: Sources, target: Target) -> Finding:
    return worst(_inspect(sources, structure) for structure in target.structures)


def _inspect(sources: Sources, structure: Structure) -> Finding:
    causal, decoder, top = structure.causal or structure.top, structure.decoder, structure.top
    if structure.unread:
        state = State.NATIVE if claimed(sources, structure) else State.REFUSED
        return Finding(NAME, state, top.path, top.line, f"not read: {structure.unread}")
    if decoder is None:
        detail = "the config names the language model; give its folder to --model"
        return Finding(NAME, State.NOT_APPLICABLE, top.path, top.line, detail)
    missing = sorted(
        f"{cls}.{name}"
        for (_, cls), names in _aliases(sources, structure).items()
        for name in names
    )
    if missing:
        detail = f"the drafter loader finds no {', '.join(missing)}"
        return Finding(NAME, State.CLOSED, causal.path, causal.line, detail)
    if structure.bare and structure.causal is not None and claims(sources, top):
        detail = f"{top.name} claims it, and gives out its decoder as it is"
        return Finding(NAME, State.NATIVE, top.path, top.line, detail)
    if structure.bare:
        return _bare(sources, structure)
    detail = f"{causal.name} has `.model.embed_tokens` and `.lm_head`"
    return Finding(NAME, State.NATIVE, causal.path, causal.line, detail)


def _bare(sources: Sources, structure: Structure) -> Finding:
    """The state of the drafter loader for a decoder that it is given without a causal class."""
    assert structure.decoder is not None
    loader = proposer.find(sources)
    path, found = loader.path, follows(loader.method)
    if found is None:
        detail = "the loader takes the language model in a form this tool does not know"
        return Finding(NAME, State.REFUSED, path, loader.method.lineno, detail)
    statement, after = found
    name = (structure.outer or structure.decoder).name
    detail = f"the language model is a bare {name}: no `.model`, no `.lm_head`"
    if not handles_bare(after):
        return Finding(NAME, State.CLOSED, path, statement.lineno, detail)
    inner = _v2_inner(sources)
    if inner is not None:
        return Finding(NAME, State.CLOSED, V2_PATH, inner.lineno, detail)
    detail = "the loader takes a bare decoder and the wrapper's lm_head"
    return Finding(NAME, State.NATIVE, path, statement.lineno, detail)


def _v2_inner(sources: Sources) -> ast.stmt | None:
    """Where the V2 runner takes `.model` of the language model, whatever it is; None where there
    is no such runner, or it takes a bare decoder too."""
    if not sources.exists(V2_PATH):
        return None
    for function in sources.tree(V2_PATH).body:
        if isinstance(function, ast.FunctionDef) and function.name == V2_FUNCTION:
            return next((s for s in function.body if ast.unparse(s) == INNER), None)
    return None


def edits(sources: Sources, target: Target) -> list[Edit]:
    found: list[Edit] = []
    for structure in target.structures:
        if structure.decoder is None:
            continue
        for (path, cls), aliases in _aliases(sources, structure).items():
            head = aliases.pop("lm_head", None)
            if aliases:
                arguments = {"cls": cls, **aliases}
                found.append(Edit("aliases", NAME, path, (cls,), "aliases", arguments))
            if head is not None:
                found.append(_head_edit(sources, structure.causal or structure.top, head))
        if structure.bare:
            loader = proposer.find(sources)
            arguments = {"cls": loader.cls}
            found.append(Edit(NAME, NAME, loader.path, (loader.cls,), "weight_sharing", arguments))
            if _v2_inner(sources) is not None:
                arguments = {"function": V2_FUNCTION}
                name = "weight-sharing-v2"
                found.append(Edit(name, NAME, V2_PATH, (V2_FUNCTION,), "bare_decoder", arguments))
    return [edit for i, edit in enumerate(found) if edit not in found[:i]]
