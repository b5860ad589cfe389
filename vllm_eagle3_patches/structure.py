"""The classes of a target: wrapper, language model, decoder; found by reading `__init__`.

A text model is a causal class whose `self.model` is the decoder.  Kimi-K2.5 is a wrapper: from
0.16.0 its `language_model` is a registered `DeepseekV2ForCausalLM`, in 0.15.x a bare
`DeepseekV2Model` beside an `lm_head` of the wrapper's own.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from vllm_eagle3_patches import registry
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.sources import ClassSite, Sources, bases, find_classes


@dataclass(frozen=True)
class Structure:
    """One way the target is built (one for each platform that has its own files).

    Attributes:
        top: the class the registry names.
        causal: the class that has `.model`, the same as `top` for a text model; None when a
            wrapper holds a bare decoder.
        decoder: the class whose `forward` runs the layers.
    """

    top: ClassSite
    causal: ClassSite | None
    decoder: ClassSite

    @property
    def is_wrapper(self) -> bool:
        return self.causal is not self.top


def _assigned(
    sources: Sources, site: ClassSite, attribute: str
) -> tuple[ClassSite, ast.Call] | None:
    """The call whose result an `__init__` of the class or a base stores in `self.attribute`."""
    for owner in bases(sources, site):
        init = owner.method("__init__")
        for node in ast.walk(init) if init else ():
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                for target in node.targets:
                    if (
                        isinstance(target, ast.Attribute)
                        and isinstance(target.value, ast.Name)
                        and target.value.id == "self"
                        and target.attr == attribute
                    ):
                        return owner, node.value
    return None


def _called_class(
    sources: Sources, site: ClassSite, owner: ClassSite, call: ast.Call
) -> list[ClassSite]:
    """The class a constructor call makes: `Name(...)`, or `self.model_cls(...)`."""
    func = call.func
    if isinstance(func, ast.Name):
        return find_classes(sources, owner.path, func.id)
    if (
        isinstance(func, ast.Attribute)
        and isinstance(func.value, ast.Name)
        and func.value.id == "self"
    ):
        for holder in bases(sources, site):
            value = holder.attribute(func.attr)
            if isinstance(value, ast.Name):
                return find_classes(sources, holder.path, value.id)
    return []


def _has_layers(sources: Sources, site: ClassSite) -> bool:
    """Whether the class itself makes the decoder layers: `..., self.layers = make_layers(...)`."""
    for owner in bases(sources, site):
        init = owner.method("__init__")
        for node in ast.walk(init) if init else ():
            if (
                isinstance(node, ast.Attribute)
                and node.attr == "layers"
                and isinstance(node.ctx, ast.Store)
            ):
                return True
    return False


def _registered(sources: Sources, call: ast.Call) -> list[ClassSite]:
    """The class of `init_vllm_registered_model(..., architectures=["X"])`."""
    for keyword in call.keywords:
        if keyword.arg == "architectures" and isinstance(keyword.value, ast.List):
            names = [e.value for e in keyword.value.elts if isinstance(e, ast.Constant)]
            if len(names) == 1 and (entry := registry.read(sources).get(str(names[0]))):
                return registry.classes(sources, entry)
    return []


def _one(found: list[ClassSite], site: ClassSite, attribute: str) -> ClassSite:
    if len(found) != 1:
        names = ", ".join(f"{s.path}:{s.name}" for s in found) or "none that can be named"
        raise RefusedError(
            f"the class behind {site.name}.{attribute} is not certain: {names}",
            where=f"{site.path}:{site.line}",
        )
    return found[0]


def of_class(sources: Sources, top: ClassSite) -> Structure:
    """The structure of the target whose registered class is `top`.

    Raises:
        RefusedError: the decoder cannot be named with certainty.
    """
    inner = _assigned(sources, top, "model")
    if inner is not None:
        decoder = _one(_called_class(sources, top, *inner), top, "model")
        return Structure(top, top, decoder)
    wrapped = _assigned(sources, top, "language_model")
    if wrapped is None:
        raise RefusedError(
            f"{top.name} has neither `self.model` nor `self.language_model`",
            where=f"{top.path}:{top.line}",
        )
    owner, call = wrapped
    if isinstance(call.func, ast.Name) and call.func.id == "init_vllm_registered_model":
        language = _one(_registered(sources, call), top, "language_model")
    else:
        language = _one(_called_class(sources, top, owner, call), top, "language_model")
    if _has_layers(sources, language):
        return Structure(top, None, language)
    return Structure(top, language, of_class(sources, language).decoder)
