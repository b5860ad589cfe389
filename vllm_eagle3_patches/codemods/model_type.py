"""Adds model types to the list in `SpeculativeConfig`."""

from __future__ import annotations

import ast
from typing import cast

import libcst as cst

from vllm_eagle3_patches.codemods.syntax import build, code, edit_class, tree
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.model_type import CLASS, LISTS, entries, find_list

READS = frozenset({"_verify_args"})  # 0.10.1 to 0.21.0


def _is_name(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


class _Extend(cst.CSTTransformer):
    """Replaces the value of the assignment to `name` by one entry a line."""

    def __init__(self, name: str, types: list[str], module: cst.Module) -> None:
        self.name, self.types, self.module = name, types, module
        self.indent = module.default_indent
        self.changed = 0

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        return False  # no need to look into statements

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine:
        assign = original_node.body[0]
        if not (
            len(original_node.body) == 1
            and isinstance(assign, cst.Assign)
            and len(assign.targets) == 1
            and _is_name(assign.targets[0].target, self.name)
            and isinstance(assign.value, cst.List)
        ):
            return updated_node
        if "#" in code(assign):
            raise RefusedError(f"the list {self.name} has comments in it")
        self.changed += 1
        present = [code(element.value) for element in assign.value.elements]
        quoted = [
            f'"{t}"' for t in self.types if f'"{t}"' not in present and f"'{t}'" not in present
        ]
        lines = [f"{self.name} = [", *(f"{self.indent}{e}," for e in [*present, *quoted]), "]"]
        new = build("\n".join(lines), self.module)[0]
        assert isinstance(new, cst.SimpleStatementLine)
        return updated_node.with_changes(body=new.body)


def transform(module: cst.Module, types: str) -> cst.Module:
    """Raises RefusedError where the list is not one this tool knows."""

    def change(cls: cst.ClassDef) -> cst.ClassDef:
        found = find_list(cast(ast.ClassDef, tree(cls)))
        if found is None:
            raise RefusedError(f"no list {' or '.join(LISTS)} that a model_type is tested against")
        wanted = types.split(",")
        if set(wanted) <= set(entries(found) or ()):
            return cls
        name = found.targets[0].id  # type: ignore[attr-defined]
        extend = _Extend(name, wanted, module)
        new = cls.visit(extend)
        if extend.changed != 1:
            raise RefusedError(
                f"{name} is assigned {extend.changed} times, where once was expected"
            )
        assert isinstance(new, cst.ClassDef)
        return new

    return edit_class(module, CLASS, change)
