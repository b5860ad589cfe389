"""A small interpreter for vLLM's configuration code: what a function does with known values.

Nothing is executed: the syntax tree is walked with plain values, and whatever is not known is
`UNKNOWN`, which spreads.  So the answers come from the installed source, and where the source
does something this interpreter does not understand the answer is `UNKNOWN`, never a guess.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vllm_eagle3_patches.preflight.values import MISSING, UNKNOWN, Bag, Made, known

MAX_ITEMS = 10_000
COMPARE: dict[type, Callable[[Any, Any], object]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
ARITHMETIC: dict[type, Callable[[Any, Any], object]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
}


def truth(value: object) -> bool | None:
    """Whether a value is true; None where that is not known."""
    if value is UNKNOWN or isinstance(value, Made):
        return None
    return True if isinstance(value, Bag) else bool(value)


def too_long(*values: object) -> bool:
    """Whether one of them has more items than are looked at, e.g. a `range` of a wild number."""
    return any(isinstance(v, range) and v[MAX_ITEMS:] for v in values)


def _repeats(op: ast.operator, left: object, right: object) -> bool:
    """Whether `[x] * n` would be longer than is looked at."""
    if not isinstance(op, ast.Mult):
        return False
    pairs = ((left, right), (right, left))
    return any(
        isinstance(items, (list, tuple, str)) and isinstance(count, int) and count > MAX_ITEMS
        for items, count in pairs
    )


@dataclass
class Expressions:
    """Evaluates expressions over `names`; `globals` are module-level values, read only."""

    names: dict[str, object]
    globals: Mapping[str, object] = field(default_factory=dict)

    def value(self, node: ast.expr | None) -> object:
        handler = getattr(self, f"_{type(node).__name__.lower()}", None)
        return UNKNOWN if handler is None else handler(node)

    def _constant(self, node: ast.Constant) -> object:
        return node.value

    def _name(self, node: ast.Name) -> object:
        if node.id in self.names:
            return self.names[node.id]
        return self.globals.get(node.id, UNKNOWN)

    def _attribute(self, node: ast.Attribute) -> object:
        owner = self.value(node.value)
        if isinstance(owner, Bag):
            found = owner.get(node.attr)
            return UNKNOWN if found is MISSING else found
        return UNKNOWN

    def _subscript(self, node: ast.Subscript) -> object:
        owner, key = self.value(node.value), self.value(node.slice)
        if known(owner, key) and isinstance(owner, (dict, list, tuple, str)):
            try:
                return owner[key]  # type: ignore[index,call-overload]
            except (LookupError, TypeError):
                return UNKNOWN
        return UNKNOWN

    def _items(self, nodes: Iterable[ast.expr]) -> list[object] | None:
        found: list[object] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                inner = self.value(node.value)
                if not isinstance(inner, (list, tuple)):
                    return None
                found += inner
            else:
                found.append(self.value(node))
        return found

    def _list(self, node: ast.List) -> object:
        items = self._items(node.elts)
        return UNKNOWN if items is None else items

    def _tuple(self, node: ast.Tuple) -> object:
        items = self._items(node.elts)
        return UNKNOWN if items is None else tuple(items)

    def _set(self, node: ast.Set) -> object:
        items = self._items(node.elts)
        if items is None or not known(*items):
            return UNKNOWN
        try:
            return set(items)
        except TypeError:
            return UNKNOWN

    def _dict(self, node: ast.Dict) -> object:
        found: dict[object, object] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            name = self.value(key)
            if key is None or not isinstance(name, (str, int)):
                return UNKNOWN
            found[name] = self.value(value)
        return found

    def _joinedstr(self, node: ast.JoinedStr) -> object:
        parts = []
        for part in node.values:
            value = self.value(part.value if isinstance(part, ast.FormattedValue) else part)
            parts.append(str(value) if known(value) else "…")
        return "".join(parts)

    def _namedexpr(self, node: ast.NamedExpr) -> object:
        value = self.value(node.value)
        self.names[node.target.id] = value
        return value

    def _ifexp(self, node: ast.IfExp) -> object:
        test = truth(self.value(node.test))
        if test is None:
            first, second = self.value(node.body), self.value(node.orelse)
            return first if known(first, second) and first == second else UNKNOWN
        return self.value(node.body if test else node.orelse)

    def _boolop(self, node: ast.BoolOp) -> object:
        stop = isinstance(node.op, ast.Or)
        unsure = False
        value: object = UNKNOWN
        for part in node.values:
            value = self.value(part)
            sure = truth(value)
            if sure is None:
                unsure = True
            elif sure is stop:
                # A later sure value decides the truth of the whole, though not its value.
                return value if not unsure else stop if isinstance(value, bool) else UNKNOWN
        return UNKNOWN if unsure else value

    def _unaryop(self, node: ast.UnaryOp) -> object:
        value = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            sure = truth(value)
            return UNKNOWN if sure is None else not sure
        if isinstance(node.op, ast.USub) and isinstance(value, (int, float)):
            return -value
        return UNKNOWN

    def _binop(self, node: ast.BinOp) -> object:
        left, right = self.value(node.left), self.value(node.right)
        apply = ARITHMETIC.get(type(node.op))
        if apply is None or not known(left, right) or _repeats(node.op, left, right):
            return UNKNOWN
        try:
            return apply(left, right)
        except (TypeError, ValueError, ZeroDivisionError):
            return UNKNOWN

    def _compare(self, node: ast.Compare) -> object:
        left = self.value(node.left)
        result: object = True
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.value(right_node)
            result = self._compared(op, left, right)
            if truth(result) is not True:
                return result
            left = right
        return result

    def _compared(self, op: ast.cmpop, left: object, right: object) -> object:
        if isinstance(op, (ast.Is, ast.IsNot)):
            if UNKNOWN in (left, right):
                return UNKNOWN
            same = left is right
            return same if isinstance(op, ast.Is) else not same
        if isinstance(op, (ast.In, ast.NotIn)):
            inside = self._inside(left, right)
            return UNKNOWN if inside is None else inside is isinstance(op, ast.In)
        if not known(left, right):
            return UNKNOWN
        try:
            return COMPARE[type(op)](left, right)
        except TypeError:
            return UNKNOWN

    def _inside(self, item: object, container: object) -> bool | None:
        if not known(item) or not isinstance(container, (str, list, tuple, set, frozenset, dict)):
            return None
        try:
            if item in container:
                return True
        except TypeError:
            return None
        return False if isinstance(container, str) or known(*container) else None

    def _generatorexp(self, node: ast.GeneratorExp) -> object:
        return self._comprehension(node.generators, node.elt)

    def _listcomp(self, node: ast.ListComp) -> object:
        return self._comprehension(node.generators, node.elt)

    def _comprehension(self, generators: list[ast.comprehension], element: ast.expr) -> object:
        if len(generators) != 1:
            return UNKNOWN
        items = self.value(generators[0].iter)
        if not isinstance(items, (list, tuple, range, set, frozenset, dict)):
            return UNKNOWN
        if too_long(items) or len(items) > MAX_ITEMS:
            return UNKNOWN
        found = []
        inner = type(self)(dict(self.names), self.globals)
        for item in items:
            inner.bind(generators[0].target, item)
            tests = [truth(inner.value(test)) for test in generators[0].ifs]
            if None in tests:
                return UNKNOWN
            if all(tests):
                found.append(inner.value(element))
        return found

    def bind(self, target: ast.expr, value: object) -> None:
        """Assigns a value to a name, attribute, item, or tuple of these."""
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Attribute):
            owner = self.value(target.value)
            if isinstance(owner, Bag):
                owner.set(target.attr, value)
        elif isinstance(target, ast.Subscript):
            owner, key = self.value(target.value), self.value(target.slice)
            if isinstance(owner, dict) and isinstance(key, (str, int)):
                owner[key] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            items = list(value) if isinstance(value, (list, tuple)) else []
            if len(items) != len(target.elts):
                items = [UNKNOWN] * len(target.elts)
            for part, item in zip(target.elts, items, strict=True):
                self.bind(part, item)
