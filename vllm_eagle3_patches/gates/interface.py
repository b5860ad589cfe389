"""Gate `interface`: the target class is a `SupportsEagle3`.

The runner calls `supports_eagle3(model)`, an isinstance test of a runtime-checkable protocol;
from 0.11.1 the protocol has data attributes, so the class must really inherit it.  Up to 0.17.1
the class must have both methods of its own; from 0.18.0 the protocol has default bodies, which
want the decoder to inherit `EagleModelMixin`.
"""

from __future__ import annotations

import ast

from vllm_eagle3_patches import decoder
from vllm_eagle3_patches.gates import protocol
from vllm_eagle3_patches.gates.aux_capture import captures
from vllm_eagle3_patches.gates.base import Edit, Finding, State
from vllm_eagle3_patches.sources import ClassSite, Sources, bases, find_classes
from vllm_eagle3_patches.structure import Structure, owner_of
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
    """The classes that must have it: the registered one, and up to 0.17.1, where a wrapper hands
    the layer ids on to its language model, that too."""
    if structure.causal in (None, structure.top) or protocol.has_mixin(sources):
        return [structure.top]
    assert structure.causal is not None
    return [structure.top, structure.causal]


def _keeps(sources: Sources, site: ClassSite) -> str | None:
    """What a class does to the decoder's result before it returns it, or None.

    The runner unpacks `(hidden_states, aux_hidden_states)`: forward must hand on what it gets.
    """
    owner = owner_of(sources, site, "forward")
    forward = owner.method("forward") if owner else None
    if owner is None or forward is None:
        return f"{site.name} has no forward"
    for node in ast.walk(forward):
        value = node.value if isinstance(node, ast.Return) else None
        if value is not None and not _handed_on(forward, value):
            return f"{owner.name}.forward returns `{ast.unparse(value)}`, changed"
    return None


def _handed_on(forward: ast.FunctionDef, value: ast.expr) -> bool:
    """Whether the value is what a call on a part of self gave, and nothing else."""
    if isinstance(value, ast.Call):
        root = ast.unparse(value.func).split(".")[0]
        return root in ("self", "super()") or _is_part(forward, root)
    if not isinstance(value, ast.Name):
        return False
    given = _given(forward, value.id)
    return bool(given) and all(isinstance(g, ast.Call) and _handed_on(forward, g) for g in given)


def _is_part(forward: ast.FunctionDef, name: str) -> bool:
    """Whether the local name stands for a part of self, e.g. `model = self.language_model`."""
    given = _given(forward, name)
    return bool(given) and all(ast.unparse(g).split(".")[0] in ("self", name) for g in given)


def _given(forward: ast.FunctionDef, name: str) -> list[ast.expr]:
    """Every value assigned to the local name."""
    return [
        node.value
        for node in ast.walk(forward)
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if any(isinstance(t, ast.Name) and t.id == name for t in ast.walk(target))
    ]


def inspect(sources: Sources, target: Target) -> Finding:
    top = target.structures[0].top
    for structure in target.structures:
        for site in _needed(sources, structure):
            lack = _missing(sources, site)
            if lack is None:
                continue
            changes = _keeps(sources, site)
            state = State.CLOSED if changes is None else State.REFUSED
            detail = lack if changes is None else f"{lack}; {changes}"
            return Finding(NAME, state, site.path, site.line, detail)
    return Finding(NAME, State.NATIVE, top.path, top.line, f"{top.name} is a {protocol.NAME}")


def edits(sources: Sources, target: Target) -> list[Edit]:
    """One edit for the causal class that makes its decoder, one for a wrapper."""
    found: list[Edit] = []
    for structure in target.structures:
        own = _decoder_is_on_its_own(sources, structure)
        for causal in _causals(sources, structure):
            if _missing(sources, causal) is not None:
                body = "attribute" if own else "delegate"
                found.append(_edit("interface", sources, causal, structure.inner, body, own))
        if structure.language is not None and _missing(sources, structure.top) is not None:
            needs = own or structure.by_config
            name, part = "interface-wrapper", structure.language
            found.append(_edit(name, sources, structure.top, part, "delegate", needs))
    return [edit for i, edit in enumerate(found) if edit not in found[:i]]


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
    name: str, sources: Sources, site: ClassSite, part: str, body: str, needs_setter: bool
) -> Edit:
    """`body`: how the layer ids reach `self.<part>`; from 0.18.0 only where the protocol's own
    way would not do."""
    owner = _maker(sources, site)
    era = "mixin" if protocol.has_mixin(sources) else "methods"
    if era == "mixin" and not needs_setter:
        body = "inherit"
    arguments = {"cls": owner.name, "inner": part, "body": body, "era": era}
    return Edit(name, NAME, owner.path, (owner.name,), "interface", arguments)
