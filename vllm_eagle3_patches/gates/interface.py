"""Gate `interface`: the target class is a `SupportsEagle3`.

The runner calls `supports_eagle3(model)`, an isinstance test of a runtime-checkable protocol;
from 0.11.1 the protocol has data attributes, so the class must really inherit it.  Up to 0.17.1
the class must have both methods of its own; from 0.18.0 the protocol has default bodies, which
want the decoder to inherit `EagleModelMixin`.
"""

from __future__ import annotations

import ast

from vllm_eagle3_patches import backend, decoder, handover, protocol, registry
from vllm_eagle3_patches.gates.aux_capture import captures
from vllm_eagle3_patches.gates.base import Edit, Finding, State
from vllm_eagle3_patches.sources import ClassSite, Sources, bases, find_classes, owner_of
from vllm_eagle3_patches.structure import Structure
from vllm_eagle3_patches.target import Target

NAME = "interface"


def _missing(sources: Sources, site: ClassSite) -> str | None:
    """What the class lacks of the interface, in words, or None."""
    if not protocol.claims(sources, site):
        return f"{site.name} does not inherit {protocol.NAME}"
    if protocol.has_mixin(sources):
        return None
    for method in (protocol.SETTER, protocol.GETTER):
        if not protocol.defines(sources, site, method):
            return f"{site.name} has no {method}"
    return None


def _needed(sources: Sources, structure: Structure) -> list[ClassSite]:
    """The classes that must have it: the registered one, and where a wrapper hands the layer ids
    on to its language model (up to 0.17.1, past a second step, or where a config may name
    another one), that too."""
    reached = protocol.has_mixin(sources) and structure.outer is None
    if structure.chosen and reached:
        reached = protocol.claims(sources, structure.top) and not protocol.defines(
            sources, structure.top, protocol.SETTER
        )
    if structure.causal in (None, structure.top) or reached:
        return [structure.top]
    assert structure.causal is not None
    return [structure.top, structure.causal]


def inspect(sources: Sources, target: Target) -> Finding:
    top = target.structures[0].top
    for structure in target.structures:
        for site in _needed(sources, structure):
            lack = _missing(sources, site)
            if lack is None:
                continue
            changes = handover.changed(sources, site)
            state = State.CLOSED if changes is None else State.REFUSED
            detail = lack if changes is None else f"{lack}; {changes}"
            return Finding(NAME, state, site.path, site.line, detail)
    lost = _lost(sources, target)
    if lost is not None:
        return lost
    need = unmet(sources, target)
    if need is None:
        return Finding(NAME, State.NATIVE, top.path, top.line, f"{top.name} is a {protocol.NAME}")
    detail = f"{need.site.name} is a {protocol.NAME}; {need}"
    if need.installed is None:
        return Finding(NAME, State.NATIVE, top.path, top.line, detail)
    return Finding(NAME, State.REFUSED, need.path, need.line, detail)


def unmet(sources: Sources, target: Target) -> backend.Need | None:
    """What a class that gets the layer ids asks for, of `transformers`, and is not seen to be
    there: the registered class, or the language model that a config names."""
    sites = [structure.top for structure in target.structures] + _languages(sources, target)
    needs = (backend.need(sources, site) for site in sites)
    return next((need for need in needs if need is not None), None)


def _languages(sources: Sources, target: Target) -> list[ClassSite]:
    """The classes of the language model that a config names."""
    entry = registry.read(sources).get(target.language) if target.language is not None else None
    return registry.classes(sources, entry) if entry is not None else []


def _lost(sources: Sources, target: Target) -> Finding | None:
    """A wrapper that sets the layer ids on the decoder of its language model: a decoder of the
    Transformers backend does not look there (LLaVA, 0.17.1), and is no `EagleModelMixin`, which
    the protocol's default asserts once the model is loaded (0.18.0 on)."""
    for site in (s for s in _languages(sources, target) if backend.runs(sources, s)):
        for top in (structure.top for structure in target.structures):
            owner = owner_of(sources, top, protocol.SETTER)
            setter = owner.method(protocol.SETTER) if owner is not None else None
            if owner is None or setter is None or f".{protocol.SETTER}(" in ast.unparse(setter):
                continue
            detail = (
                f"{top.name} sets the layer ids on a decoder of vLLM's own; its language model, "
                f"{site.name}, runs on the Transformers backend and would not take them"
            )
            return Finding(NAME, State.REFUSED, owner.path, setter.lineno, detail)
    return None


def edits(sources: Sources, target: Target) -> list[Edit]:
    """One edit for the causal class that makes its decoder, one for a wrapper."""
    found: list[Edit] = []
    for structure in target.structures:
        body = _body(sources, structure)
        for causal in _causals(sources, structure):
            if _missing(sources, causal) is not None:
                part = structure.inner if structure.causal else "model"
                found.append(_edit("interface", sources, causal, part, body, structure))
        if structure.language is not None and _missing(sources, structure.top) is not None:
            # One form for all language models that a config may name, whichever come together.
            varies = structure.by_config or structure.chosen is not None
            if structure.causal is None and not varies:
                own = body
            elif protocol.has_mixin(sources) and body == "inherit" and not varies:
                own = "inherit"
            else:
                own = "delegate"
            name, part = "interface-wrapper", structure.language
            found.append(_edit(name, sources, structure.top, part, own, structure))
    return [edit for i, edit in enumerate(found) if edit not in found[:i]]


def _body(sources: Sources, structure: Structure) -> str:
    """How the layer ids reach the decoder from the class that holds it."""
    own = _decoder_is_on_its_own(sources, structure)
    if own or not protocol.has_mixin(sources):
        return "attribute" if own else "delegate"
    return "inherit" if protocol.reaches(sources, structure) else "mixin"


def _decoder_is_on_its_own(sources: Sources, structure: Structure) -> bool:
    """Whether the decoder captures by itself, without the methods or the mixin that would set its
    layer ids: upstream's DeepSeek, and most decoders up to 0.17.1."""
    if structure.decoder is None:
        return False
    found = decoder.forward_with_loop(sources, structure.decoder)
    if found is None or not captures(found[1]):
        return False
    if protocol.has_mixin(sources):
        return not protocol.inherits(sources, structure.decoder, protocol.MIXIN)
    return not protocol.defines(sources, structure.decoder, protocol.SETTER)


def _causals(sources: Sources, structure: Structure) -> list[ClassSite]:
    """The text-only class to open: the target's own, or the one beside a bare decoder, which
    text-only targets need (0.15.x); none where a wrapper's language model needs nothing."""
    if structure.causal is not None:
        return [structure.causal] if structure.causal in _needed(sources, structure) else []
    if structure.decoder is None:
        return []
    name = structure.decoder.name.removesuffix("Model") + "ForCausalLM"
    return find_classes(sources, structure.decoder.path, name)


def _maker(sources: Sources, site: ClassSite) -> ClassSite:
    """The class in the MRO that makes the inner model: its subclasses share what it has."""
    for owner in bases(sources, site):
        if owner.method("__init__") or owner.method("_init_model"):
            return owner
        if any(isinstance(s, (ast.Assign, ast.AnnAssign)) for s in owner.node.body):
            return owner
    return site


def _edit(
    name: str, sources: Sources, site: ClassSite, part: str, body: str, structure: Structure
) -> Edit:
    """`body`: how the layer ids reach `self.<part>`; from 0.18.0 only where the protocol's own
    way would not do."""
    owner = _maker(sources, site)
    era = "mixin" if protocol.has_mixin(sources) else "methods"
    arguments = {"cls": owner.name, "inner": part, "body": body, "era": era}
    if body in ("attribute", "mixin") and structure.decoder is not None:
        if era == "mixin" and not protocol.reaches(sources, structure):
            arguments["default"] = "own"
        found = decoder.forward_with_loop(sources, structure.decoder)
        container = decoder.loops(found[1])[0][1].container if found else "layers"
        if container != "layers":
            arguments["layers"] = container
    return Edit(name, NAME, owner.path, (owner.name,), "interface", arguments)
