"""Makes a model class a `SupportsEagle3` that hands the layer ids on to its inner model.

From 0.18.0 the protocol's default bodies do that wherever the decoder has the mixin; up to 0.17.1
the class needs both methods.
"""

from __future__ import annotations

import libcst as cst

from vllm_eagle3_patches import protocol
from vllm_eagle3_patches.codemods import headers, imports
from vllm_eagle3_patches.codemods.syntax import code, edit_class, insert_methods, method_index
from vllm_eagle3_patches.errors import RefusedError

READS = frozenset[str]()
SETTERS = {
    "delegate": """
        def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
            self.{inner}.set_aux_hidden_state_layers(layers)
        """,
    "attribute": """
        def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
            self.{inner}.aux_hidden_state_layers = layers
        """,
    "mixin": """
        def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
            self.{inner}._set_aux_hidden_state_layers(layers)
        """,
}
GETTER = """
        def {getter}(self) -> tuple[int, ...]:
            return self.{inner}.{getter}()
        """
DEFAULT = """
        def {getter}(self) -> tuple[int, ...]:
            num_layers = len(self.{inner}.{layers})
            return (2, num_layers // 2, num_layers - 3)
        """


def _methods(body: str, era: str, default: str) -> dict[str, str]:
    """The methods to add: name -> template."""
    if body == "inherit":
        return {}
    found = {protocol.SETTER: SETTERS[body]}
    if era == "methods":
        found[protocol.GETTER] = GETTER if body == "delegate" else DEFAULT
    elif default == "own":
        found[protocol.DEFAULT] = DEFAULT
    return found


def transform(
    module: cst.Module,
    cls: str,
    inner: str,
    body: str = "delegate",
    era: str = "methods",
    default: str = "protocol",
    layers: str = "layers",
) -> cst.Module:
    """`body`: "delegate" to the part's methods, set its "attribute", call its "mixin", or
    "inherit" the protocol's; `default`: whether the class needs its "own" default layers.

    Raises RefusedError where the class has part of the interface, or an unusual header.
    """
    texts = _methods(body, era, default)

    def change(node: cst.ClassDef) -> cst.ClassDef:
        named = protocol.NAME in [code(base.value) for base in node.bases]
        present = [m for m in texts if method_index(node, m) is not None]
        if named and len(present) == len(texts):
            return node
        if named or (present and len(present) != len(texts)):
            raise RefusedError(f"{cls} has a part of {protocol.NAME} already")
        new = headers.with_base(node, protocol.NAME, module.default_indent)
        for name, text in texts.items():
            if name not in present:
                filled = text.format(inner=inner, getter=name, layers=layers)
                new = insert_methods(new, "forward", filled, module)
        return new

    changed = edit_class(module, cls, change)
    if changed is module:
        return module
    return imports.add_beside(changed, protocol.NAME, headers.INTERFACES)
