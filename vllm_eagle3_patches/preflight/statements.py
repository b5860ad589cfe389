"""The statements of the interpreter: runs a function body and says what it returns or raises."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vllm_eagle3_patches.preflight.evaluate import Evaluator
from vllm_eagle3_patches.preflight.expressions import MAX_ITEMS, too_long, truth
from vllm_eagle3_patches.preflight.values import UNKNOWN, Bag, known


@dataclass(frozen=True)
class Outcome:
    """What a function does: `raised` is the message of the exception it surely raises, or None."""

    value: object
    raised: str | None = None


class _Return(Exception):
    def __init__(self, value: object) -> None:
        super().__init__()
        self.value = value


class _Raise(Exception):
    def __init__(self, message: str) -> None:
        super().__init__()
        self.message = message


class _Stop(Exception):
    """`break` or `continue`."""

    def __init__(self, leave: bool) -> None:
        super().__init__()
        self.leave = leave


def run(
    function: ast.FunctionDef,
    arguments: Mapping[str, object],
    globals: Mapping[str, object] | None = None,
) -> Outcome:
    """Runs the body with these arguments; those not given have their default, or are unknown."""
    names: dict[str, object] = {}
    expressions = Evaluator(names, globals or {})
    parameters = function.args
    positional = [*parameters.posonlyargs, *parameters.args]
    defaults = [None] * (len(positional) - len(parameters.defaults)) + list(parameters.defaults)
    for argument, default in [
        *zip(positional, defaults, strict=True),
        *zip(parameters.kwonlyargs, parameters.kw_defaults, strict=True),
    ]:
        names[argument.arg] = UNKNOWN if default is None else expressions.value(default)
    if parameters.kwarg:
        names[parameters.kwarg.arg] = {}
    names.update(arguments)
    runner = _Runner(expressions)
    try:
        runner.block(function.body)
    except _Return as answer:
        return Outcome(UNKNOWN if runner.unsure else answer.value)
    except _Raise as error:
        return Outcome(UNKNOWN, None if runner.unsure else error.message)
    return Outcome(UNKNOWN if runner.unsure else None)


def _reachable(values: Iterable[object], found: dict[int, Bag]) -> dict[int, Bag]:
    for value in values:
        if isinstance(value, Bag) and id(value) not in found:
            found[id(value)] = value
            _reachable(list(value.attributes.values()), found)
    return found


class _Runner:
    def __init__(self, expressions: Evaluator) -> None:
        self.expressions = expressions
        self.unsure = False  # a return or raise may have happened under an unknown condition

    def block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            handler = getattr(self, f"_{type(statement).__name__.lower()}", None)
            if handler is not None:
                handler(statement)

    def _expr(self, node: ast.Expr) -> None:
        self.expressions.value(node.value)

    def _assign(self, node: ast.Assign) -> None:
        value = self.expressions.value(node.value)
        for target in node.targets:
            self.expressions.bind(target, value)

    def _annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.expressions.bind(node.target, self.expressions.value(node.value))

    def _augassign(self, node: ast.AugAssign) -> None:
        load = ast.parse(ast.unparse(node.target), mode="eval").body
        value = self.expressions.value(ast.BinOp(load, node.op, node.value))
        self.expressions.bind(node.target, value)

    def _return(self, node: ast.Return) -> None:
        raise _Return(None if node.value is None else self.expressions.value(node.value))

    def _raise(self, node: ast.Raise) -> None:
        message = "an exception"
        if isinstance(node.exc, ast.Call):
            parts = [self.expressions.value(a) for a in node.exc.args[:1]]
            text = str(parts[0]) if parts and known(*parts) else "…"
            message = f"{ast.unparse(node.exc.func)}: {text}"
        raise _Raise(message)

    def _with(self, node: ast.With) -> None:
        self.block(node.body)

    def _try(self, node: ast.Try) -> None:
        self.block(node.body)
        self.block(node.orelse)
        self.block(node.finalbody)

    def _break(self, _: ast.Break) -> None:
        raise _Stop(leave=True)

    def _continue(self, _: ast.Continue) -> None:
        raise _Stop(leave=False)

    def _for(self, node: ast.For) -> None:
        items = self.expressions.value(node.iter)
        if (
            not isinstance(items, (list, tuple, range, dict))
            or too_long(items)
            or len(items) > MAX_ITEMS
        ):
            self._maybe(node.body)
            return
        for item in items:
            self.expressions.bind(node.target, item)
            try:
                self.block(node.body)
            except _Stop as stop:
                if stop.leave:
                    return
        self.block(node.orelse)

    def _if(self, node: ast.If) -> None:
        test = truth(self.expressions.value(node.test))
        if test is not None:
            self.block(node.body if test else node.orelse)
            return
        before = self._state()
        self._maybe(node.body)
        after = self._state()
        self._restore(before)
        self._maybe(node.orelse)
        self._merge(after)

    def _maybe(self, body: list[ast.stmt]) -> None:
        """Runs a body that may or may not run; it does not end the function."""
        try:
            self.block(body)
        except _Return:
            self.unsure = True
        except (_Raise, _Stop):
            pass

    def _state(self) -> dict[tuple[int, str], object]:
        names = self.expressions.names
        state: dict[tuple[int, str], object] = {(0, k): v for k, v in names.items()}
        for number, bag in _reachable(list(names.values()), {}).items():
            state.update({(number, k): v for k, v in bag.attributes.items()})
        return state

    def _restore(self, state: dict[tuple[int, str], object]) -> None:
        names = self.expressions.names
        bags = _reachable(list(names.values()), {})
        for holder, attributes in [(0, names), *((n, b.attributes) for n, b in bags.items())]:
            attributes.clear()
            attributes.update({k: v for (n, k), v in state.items() if n == holder})

    def _merge(self, other: dict[tuple[int, str], object]) -> None:
        names = self.expressions.names
        bags = _reachable(list(names.values()), {})
        for holder, attributes in [(0, names), *((n, b.attributes) for n, b in bags.items())]:
            theirs = {k: v for (n, k), v in other.items() if n == holder}
            for key in {*attributes, *theirs}:
                mine = attributes.get(key, UNKNOWN)
                value = theirs.get(key, UNKNOWN)
                if not (mine is value or (known(mine, value) and mine == value)):
                    attributes[key] = UNKNOWN
