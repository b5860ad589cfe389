"""`SupportsEagle3` and `EagleModelMixin` as the installed vLLM defines them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from vllm_eagle3_patches.sources import ClassSite, Sources, bases, find_classes

if TYPE_CHECKING:
    from vllm_eagle3_patches.structure import Structure

PATH = "vllm/model_executor/models/interfaces.py"
NAME = "SupportsEagle3"
MIXIN = "EagleModelMixin"
SETTER = "set_aux_hidden_state_layers"
GETTER = "get_eagle3_aux_hidden_state_layers"  # to 0.17.1
DEFAULT = "get_eagle3_default_aux_hidden_state_layers"  # 0.18.0 on
METHODS = (SETTER, GETTER)


def defined(sources: Sources, name: str) -> bool:
    """Whether vLLM's interfaces.py has a class of this name."""
    return any(getattr(statement, "name", None) == name for statement in sources.tree(PATH).body)


def has_mixin(sources: Sources) -> bool:
    """Whether this vLLM has `EagleModelMixin` (0.18.0 on), which its decoders inherit."""
    return defined(sources, MIXIN)


def inherits(sources: Sources, site: ClassSite, name: str) -> bool:
    """Whether the class has a base of this name, however far up."""
    return any(owner.name == name for owner in bases(sources, site)[1:])


def claims(sources: Sources, site: ClassSite) -> bool:
    """Whether the class inherits the protocol."""
    return inherits(sources, site, NAME)


def claimed(sources: Sources, structure: Structure) -> bool:
    """Whether the registered class inherits it, and that of the language model which a config
    named too."""
    return all(claims(sources, site) for site in (structure.top, structure.chosen) if site)


def defines(sources: Sources, site: ClassSite, method: str) -> bool:
    """Whether the class, or a base other than the protocol, defines the method."""
    return any(o.method(method) for o in bases(sources, site) if o.name != NAME)


def reaches(sources: Sources, structure: Structure) -> bool:
    """Whether the protocol's own methods come to the decoder: not behind a second step, and to a
    bare one only where they look for it (0.28.0 on)."""
    if structure.outer is not None or not structure.bare:
        return structure.outer is None
    setter = find_classes(sources, PATH, NAME)[0].method(SETTER)
    return "getattr(parent_ref, 'model', parent_ref)" in ast.unparse(setter or ast.Pass())
