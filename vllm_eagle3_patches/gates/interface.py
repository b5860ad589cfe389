"""Gate `interface`: the target class is a `SupportsEagle3`.

The runner calls `supports_eagle3(model)`, an isinstance test of a runtime-checkable protocol;
from 0.11.1 the protocol has data attributes, so the class must really inherit it.  Up to 0.17.1
the class must have both methods of its own; from 0.18.0 the protocol has default bodies.
"""

from __future__ import annotations

from vllm_eagle3_patches.gates.aux_capture import captures
from vllm_eagle3_patches.gates.base import Edit, Finding, State
from vllm_eagle3_patches.sources import ClassSite, Sources, bases, find_classes
from vllm_eagle3_patches.target import INTERFACES, Target

NAME = "interface"
PROTOCOL = "SupportsEagle3"
METHODS = ("set_aux_hidden_state_layers", "get_eagle3_aux_hidden_state_layers")


def _missing(sources: Sources, site: ClassSite) -> str | None:
    """What the class lacks of the interface, in words, or None."""
    chain = bases(sources, site)
    if not any(owner.name == PROTOCOL for owner in chain):
        return f"{site.name} does not inherit {PROTOCOL}"
    protocol = next(owner for owner in chain if owner.name == PROTOCOL)
    if protocol.method(METHODS[1]) is None:
        return None  # 0.18.0 on: renamed getter, default bodies
    for method in METHODS:
        if not any(owner.method(method) for owner in chain if owner.name != PROTOCOL):
            return f"{site.name} has no {method}"
    return None


def _classes(target: Target) -> list[ClassSite]:
    """The classes that must have it: the registered one, and a wrapper's language model."""
    found: dict[tuple[str, str], ClassSite] = {}
    for structure in target.structures:
        for site in (structure.causal, structure.top):
            if site is not None:
                found[site.path, site.name] = site
    return list(found.values())


def _obstacle(sources: Sources, target: Target) -> str | None:
    """Why our methods would not work here, in words, or None."""
    (protocol,) = find_classes(sources, INTERFACES, PROTOCOL)
    if protocol.method(METHODS[1]) is None:
        return f"{PROTOCOL} here is the one of 0.18.0 on, which this tool does not write"
    for structure in target.structures:
        decoder = structure.decoder
        forward = decoder.method("forward")
        if (
            (structure.causal is None or _missing(sources, structure.causal))
            and forward is not None
            and captures(forward)
            and not all(any(o.method(m) for o in bases(sources, decoder)) for m in METHODS)
        ):
            return f"{decoder.name} captures, but lacks the methods that ours delegate to"
    return None


def inspect(sources: Sources, target: Target) -> Finding:
    top = target.structures[0].top
    for site in reversed(_classes(target)):
        lack = _missing(sources, site)
        if lack is not None:
            obstacle = _obstacle(sources, target)
            state = State.REFUSED if obstacle else State.CLOSED
            detail = f"{lack}; {obstacle}" if obstacle else lack
            return Finding(NAME, state, site.path, site.line, detail)
    return Finding(NAME, State.NATIVE, top.path, top.line, f"{top.name} is a {PROTOCOL}")


def edits(sources: Sources, target: Target) -> list[Edit]:
    """One edit for the causal class that owns `forward`, one for a wrapper."""
    found: list[Edit] = []
    for structure in target.structures:
        # In 0.15.x the wrapper does without the causal class; text-only models need it there.
        causal = structure.causal or _causal_beside(sources, structure.decoder)
        owner = next((s for s in bases(sources, causal) if s.method("forward")), causal)
        found.append(_edit("interface", owner, "model"))
        if structure.is_wrapper:
            found.append(_edit("interface-wrapper", structure.top, "language_model"))
    return list({(e.name, e.path, e.scopes): e for e in found}.values())


def _causal_beside(sources: Sources, decoder: ClassSite) -> ClassSite:
    name = decoder.name.removesuffix("Model") + "ForCausalLM"
    return find_classes(sources, decoder.path, name)[0]


def _edit(name: str, site: ClassSite, inner: str) -> Edit:
    arguments = {"cls": site.name, "inner": inner}
    return Edit(name, NAME, site.path, (site.name,), "interface", arguments)
