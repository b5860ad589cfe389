"""Makes a model class a `SupportsEagle3` that hands the layer ids on to its inner model.

From 0.18.0 the protocol's default bodies do that wherever the decoder has the mixin; up to 0.17.1
the class needs both methods.
"""

from __future__ import annotations

import libcst as cst

from vllm_eagle3_patches.codemods import headers, imports
from vllm_eagle3_patches.codemods.syntax import code, edit_class, insert_methods, method_index
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates import protocol

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
}
GETTERS = {
    "delegate": """
        def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:
            return self.{inner}.get_eagle3_aux_hidden_state_layers()
        """,
    "attribute": """
        def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:
            num_layers = len(self.{inner}.layers)
            return (2, num_layers // 2, num_layers - 3)
        """,
}


def transform(
    module: cst.Module, cls: str, inner: str, body: str = "delegate", era: str = "methods"
) -> cst.Module:
    """`body`: "delegate" to the part's methods, set its "attribute", or "inherit" the protocol's.

    Raises RefusedError where the class has part of the interface, or an unusual header.
    """
    texts: dict[str, str] = {}
    if body != "inherit":
        texts[protocol.SETTER] = SETTERS[body]
        if era == "methods":
            texts[protocol.GETTER] = GETTERS[body]

    def change(node: cst.ClassDef) -> cst.ClassDef:
        named = protocol.NAME in [code(base.value) for base in node.bases]
        present = [method_index(node, m) is not None for m in (protocol.SETTER, protocol.GETTER)]
        if named and all(present[: len(texts)]):
            return node
        if named or any(present):
            raise RefusedError(f"{cls} has a part of {protocol.NAME} already")
        new = headers.with_base(node, protocol.NAME, module.default_indent)
        for text in texts.values():
            new = insert_methods(new, "forward", text.format(inner=inner), module)
        return new

    changed = edit_class(module, cls, change)
    if changed is module:
        return module
    return imports.add_beside(changed, protocol.NAME, headers.INTERFACES)
