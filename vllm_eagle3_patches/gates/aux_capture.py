"""Gate `aux-capture`: the decoder's `forward` returns the aux hidden states that were asked for.

Id k is the residual stream on entry to layer k.  What the stream is, in terms of the loop's
variables, is decided by reading the layer classes (`vllm_eagle3_patches.stream`).
"""

from __future__ import annotations

import ast

from vllm_eagle3_patches import decoder, stream
from vllm_eagle3_patches.decoder import Loop
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import Edit, Finding, State, worst
from vllm_eagle3_patches.protocol import MIXIN, claimed, claims, has_mixin, inherits
from vllm_eagle3_patches.recurrence import refusal
from vllm_eagle3_patches.sources import ClassSite, Sources, bases, walk
from vllm_eagle3_patches.stream import Stream
from vllm_eagle3_patches.structure import Structure
from vllm_eagle3_patches.target import Target

NAME = "aux-capture"
LAYERS = "aux_hidden_state_layers"
HELPER = "_maybe_add_hidden_state"  # of EagleModelMixin, 0.18.0 on


def captures(forward: ast.FunctionDef, known: Stream | None = None) -> bool | None:
    """Whether `forward` captures as it must; None where there is no trace of capturing.

    True only for the forms that are known to be right: upstream's helper, or a test of the id in
    front of the layer's call that takes the stream; and the list returned beside the hidden
    states.  With a stream that is not `known`, a form that adds the residual is taken as right.
    """
    text = ast.unparse(forward)
    if "aux_hidden" not in text:
        return None
    if f"self.{HELPER}(" in text:
        return all(header.known for _, header in decoder.loops(forward)) and _returns_pair(forward)
    try:
        loop = decoder.find_loop(forward)
    except RefusedError:
        return False
    if loop.index is None:
        return False
    body = loop.node.body
    calls = [i for i, s in enumerate(body) if _contains_call(s, loop)]
    ids = [loop.index]
    if not loop.absolute:
        ids += [f"self.start_layer + {loop.index}", f"{loop.index} + self.start_layer"]
    checks = [
        (i, s)
        for i, s in enumerate(body)
        if isinstance(s, ast.If) and LAYERS in ast.unparse(s.test)
    ]
    if len(checks) != 1 or not calls:
        return False
    at, check = checks[0]
    # In front of the layer's call its own id; behind it (cohere2_moe, 0.32.0) the next one's.
    offset = "" if at < calls[0] else " + 1"
    if ast.unparse(check.test) not in [f"{id_}{offset} in self.{LAYERS}" for id_ in ids]:
        return False
    return _takes_stream(check, loop, known) and _returns_pair(forward)


def _contains_call(statement: ast.stmt, loop: Loop) -> bool:
    return any(node is call for node in ast.walk(statement) for call in loop.calls)


def _takes_stream(check: ast.If, loop: Loop, known: Stream | None) -> bool:
    hidden, residual = loop.hidden, loop.residual
    if residual is None or known is Stream.HIDDEN:
        allowed = [hidden, f"{hidden}.clone()"]
    else:
        total = f"{hidden} + {residual}"
        allowed = [
            f"{own} if {residual} is None else {total}" for own in (hidden, f"{hidden}.clone()")
        ] + [f"{total} if {residual} is not None else {hidden}"]
        if known is not Stream.EITHER:
            allowed.append(total)
    first = check.body[0]
    if isinstance(first, ast.If):  # Step1, 0.17.1: both cases spelt out
        spelt = [ast.unparse(s) for s in (first, *first.body, *first.orelse)][1:]
        test = ast.unparse(first.test)
        both = [f"aux_hidden_states.append({v})" for v in (hidden, f"{hidden} + {residual}")]
        return residual is not None and test == f"{residual} is None" and spelt == both
    value = None
    if isinstance(first, ast.Assign):
        value = first.value
    elif isinstance(first, ast.Expr) and isinstance(first.value, ast.Call) and first.value.args:
        value = first.value.args[0]
    return value is not None and ast.unparse(value) in allowed


def _returns_pair(forward: ast.FunctionDef) -> bool:
    return any(
        isinstance(node, ast.Return)
        and isinstance(node.value, ast.Tuple)
        and len(node.value.elts) == 2
        and ast.unparse(node.value.elts[1]) == "aux_hidden_states"
        for node in walk(forward)
    )


def _decoder(sources: Sources, structure: Structure) -> tuple[ClassSite, ast.FunctionDef]:
    """The class that owns the decoder's forward, and that forward."""
    assert structure.decoder is not None
    found = decoder.forward_with_loop(sources, structure.decoder)
    if found is None:
        raise RefusedError(f"{structure.decoder.name} has no loop", where=structure.decoder.path)
    return found


def _stream(sources: Sources, structure: Structure, forward: ast.FunctionDef) -> Stream:
    assert structure.decoder is not None
    loop = decoder.find_loop(forward)
    if stream.is_cross_attending(loop):
        raise RefusedError("an encoder-decoder: its layers attend to an encoder's states")
    if loop.residual is None:
        stream.single_stream(forward, loop)
    layers = stream.layer_classes(sources, structure.decoder, loop.container)
    found = stream.stream_of(sources, loop, layers)
    if found is Stream.SUM and stream.drops_residual(forward, loop):
        raise RefusedError("its layers defer their residual, and it drops that of the last one")
    return found


def _has_ids(sources: Sources, decoder: ClassSite) -> bool:
    """Whether the class or a base sets `aux_hidden_state_layers`, in its body or `__init__`."""
    return any(
        owner.attribute(LAYERS) is not None
        or f"attr='{LAYERS}', ctx=Store()" in ast.dump(owner.method("__init__") or ast.Pass())
        for owner in bases(sources, decoder)
    )


def inspect(sources: Sources, target: Target) -> Finding:
    return worst(_inspect(sources, structure) for structure in target.structures)


def _inspect(sources: Sources, structure: Structure) -> Finding:
    top = structure.top
    if "Diffusion" in top.name:  # DiffusionGemma
        detail = f"{top.name} does not generate token by token"
        return Finding(NAME, State.REFUSED, top.path, top.line, detail)
    if structure.by_config:
        detail = "the config names the language model; give its folder to --model"
        return Finding(NAME, State.NOT_APPLICABLE, top.path, top.line, detail)
    if structure.unread:
        return _unread(sources, structure)
    owner, forward = _decoder(sources, structure)
    try:
        known: Stream | None = _stream(sources, structure, forward)
        why = ""
    except RefusedError as error:
        known, why = None, error.what
    verdict = captures(forward, known)
    if verdict and not _has_ids(sources, structure.decoder or owner):
        detail = f"{owner.name}.forward reads {LAYERS}, which nothing sets at first"
        return Finding(NAME, State.REFUSED, owner.path, forward.lineno, detail)
    if verdict:
        detail = f"{owner.name}.forward returns the aux hidden states asked for"
        return Finding(NAME, State.NATIVE, owner.path, forward.lineno, detail)
    known_form = all(header.known for _, header in decoder.loops(forward))
    own_form = verdict is False and why and known_form and _returns_pair(forward)
    if own_form and claims(sources, structure.top):
        detail = f"upstream's {owner.name} captures in a form of its own, not read: {why}"
        return Finding(NAME, State.NATIVE, owner.path, forward.lineno, detail)
    if verdict is False:
        detail = f"{owner.name}.forward captures aux hidden states in an unknown form"
        return Finding(NAME, State.REFUSED, owner.path, forward.lineno, detail)
    why = why or refusal(sources, structure, owner) or ""
    if why:
        return Finding(NAME, State.REFUSED, owner.path, forward.lineno, f"{owner.name}: {why}")
    detail = f"{owner.name}.forward returns no aux hidden states"
    return Finding(NAME, State.CLOSED, owner.path, forward.lineno, detail)


def _unread(sources: Sources, structure: Structure) -> Finding:
    """Upstream's word, where the class claims the interface and its module captures."""
    top = structure.top
    if claimed(sources, structure):
        detail = f"upstream's {top.name} claims it; not read: {structure.unread}"
        return Finding(NAME, State.NATIVE, top.path, top.line, detail)
    return Finding(NAME, State.REFUSED, top.path, top.line, structure.unread or "")


def edits(sources: Sources, target: Target) -> list[Edit]:
    found: dict[tuple[str, str], Edit] = {}
    era = "mixin" if has_mixin(sources) else "methods"
    for structure in target.structures:
        if structure.decoder is None:
            continue
        owner, forward = _decoder(sources, structure)
        try:
            found_stream = _stream(sources, structure, forward)
        except RefusedError:
            continue
        inherited = era == "mixin" and inherits(sources, owner, MIXIN)
        own = "inherited" if inherited else era
        arguments = {"cls": owner.name, "stream": found_stream.name.lower(), "era": own}
        found[owner.path, owner.name] = Edit(
            NAME, NAME, owner.path, (owner.name,), "aux_capture", arguments
        )
    return list(found.values())
