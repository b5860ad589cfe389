"""The calls of the interpreter: the builtins and methods that configuration code uses."""

from __future__ import annotations

import ast
from collections.abc import Callable

from vllm_eagle3_patches.preflight.expressions import Expressions, too_long, truth
from vllm_eagle3_patches.preflight.values import MISSING, UNKNOWN, Bag, Made, known

BUILTINS: dict[str, Callable[..., object]] = {
    f.__name__: f
    for f in (len, tuple, list, set, frozenset, sorted, bool, int, str, min, max, range, dict)
}
TYPES: dict[str, tuple[type, ...]] = {
    "dict": (dict,),
    "Mapping": (dict,),
    "list": (list,),
    "tuple": (tuple,),
    "str": (str,),
    "int": (int,),
    "float": (float,),
    "bool": (bool,),
}
METHODS = {
    dict: {"get", "items", "keys", "values", "update", "pop", "setdefault", "copy"},
    str: {"startswith", "endswith", "lower", "upper", "replace", "removeprefix", "removesuffix"},
    list: {"append", "extend", "copy", "index", "count"},
    set: {"intersection", "union", "difference", "issubset", "add"},
    frozenset: {"intersection", "union", "difference", "issubset"},
}


class Evaluator(Expressions):
    """Expressions with calls; one that is not known gives a `Made`."""

    def _call(self, node: ast.Call) -> object:
        arguments = self._items(node.args)
        keywords = {k.arg: self.value(k.value) for k in node.keywords if k.arg}
        if arguments is None:
            return UNKNOWN
        if isinstance(node.func, ast.Name):
            return self._named_call(node, node.func.id, arguments, keywords)
        if isinstance(node.func, ast.Attribute):
            owner = self.value(node.func.value)
            answer = self._method_call(owner, node.func.attr, arguments, keywords)
            if answer is not MISSING:
                return answer
        return Made(ast.unparse(node.func), tuple(arguments), keywords)

    def _named_call(
        self, node: ast.Call, name: str, arguments: list[object], keywords: dict[str, object]
    ) -> object:
        if name in ("getattr", "hasattr"):
            owner, key = arguments[0], arguments[1]
            found = owner.get(str(key)) if isinstance(owner, Bag) and known(key) else UNKNOWN
            if name == "hasattr":
                return UNKNOWN if found is UNKNOWN else found is not MISSING
            if found is MISSING:
                return arguments[2] if len(arguments) > 2 else UNKNOWN
            return found
        if name == "isinstance":
            return self._isinstance(arguments[0], node.args[1])
        if name in ("any", "all") and isinstance(arguments[0], (list, tuple)):
            results = [truth(item) for item in arguments[0]]
            wanted = name == "any"
            return wanted if wanted in results else UNKNOWN if None in results else not wanted
        if too_long(*arguments) and name not in ("len", "range"):
            return UNKNOWN
        if name in BUILTINS and known(*arguments) and not keywords:
            try:
                return BUILTINS[name](*arguments)
            except (TypeError, ValueError, OverflowError):
                return UNKNOWN
        function = self.value(node.func)
        if callable(function):
            return function(*arguments, **keywords)
        return Made(name, tuple(arguments), keywords)

    def _isinstance(self, value: object, types: ast.expr) -> object:
        names = [ast.unparse(t) for t in (types.elts if isinstance(types, ast.Tuple) else [types])]
        if value is UNKNOWN or isinstance(value, Made):
            return UNKNOWN
        plain = tuple(t for name in names for t in TYPES.get(name, ()))
        if not isinstance(value, Bag) and plain and isinstance(value, plain):
            return True
        return False if all(name in TYPES for name in names) else UNKNOWN

    def _method_call(
        self, owner: object, name: str, arguments: list[object], keywords: dict[str, object]
    ) -> object:
        if isinstance(owner, Bag):
            found = owner.get(name)
            if callable(found):
                return found(*arguments, **keywords)
            if name == "update" and len(arguments) == 1 and isinstance(arguments[0], dict):
                for key, value in arguments[0].items():
                    owner.set(str(key), value)
                return None
            return MISSING
        for kind, methods in METHODS.items():
            if isinstance(owner, kind) and name in methods:
                if too_long(*arguments):
                    return UNKNOWN
                if not known(*arguments) and not (name in ("append", "get") and arguments):
                    return UNKNOWN
                try:
                    return getattr(owner, name)(*arguments, **keywords)
                except (TypeError, LookupError, ValueError):
                    return UNKNOWN
        return MISSING
