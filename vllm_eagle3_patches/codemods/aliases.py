"""Properties that make embedding, head and decoder reachable under the names the drafter loader
uses; no module is registered twice, so no state-dict key and no weight loading changes."""

from __future__ import annotations

import libcst as cst

from vllm_eagle3_patches.codemods.syntax import edit_class, insert_methods, method_index

READS = frozenset[str]()
PROPERTY = """
@property
def {name}(self) -> nn.Module:
    return {value}
"""


def transform(module: cst.Module, cls: str, **aliases: str) -> cst.Module:
    """`aliases`: property name -> expression on self."""

    def change(node: cst.ClassDef) -> cst.ClassDef:
        for name, value in sorted(aliases.items()):
            if method_index(node, name) is None:
                text = PROPERTY.format(name=name, value=value)
                node = insert_methods(node, "forward", text, module)
        return node

    return edit_class(module, cls, change)
