"""Makes a decoder's `forward` return the residual stream on entry to each asked layer.

Up to 0.17.1 the decoder gets the layer ids and their methods itself; from 0.18.0 it inherits
`EagleModelMixin`, as upstream's decoders do.  What the stream is (`sum`, `hidden` or
`either`) was decided by reading the layer classes, see `vllm_eagle3_patches.stream`.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import cast

import libcst as cst

from vllm_eagle3_patches.codemods import headers, imports
from vllm_eagle3_patches.codemods.syntax import (
    WIDTH,
    body_of,
    build,
    code,
    edit_class,
    edit_method,
    insert_methods,
    method_index,
    names_in,
    plain,
    splice,
    tree,
    with_body,
)
from vllm_eagle3_patches.decoder import Loop, find_loop
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.aux_capture import LAYERS, captures
from vllm_eagle3_patches.stream import Stream

MIXIN = "EagleModelMixin"
ATTRIBUTE = f"{LAYERS}: tuple[int, ...] = ()"
METHODS = """
def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
    reachable = range({first}, {last} + 1)
    if len(set(layers)) != len(layers) or not set(layers) <= set(reachable):
        raise ValueError(
            f"EAGLE-3 aux hidden state layers {{tuple(layers)}} must be distinct and lie "
            f"in {{{first}}}..{{{last}}}, the layers of the last pipeline "
            "stage: aux hidden states do not cross pipeline stages."
        )
    self.aux_hidden_state_layers = tuple(layers)

def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:
    num_layers = len(self.{container})
    return (2, num_layers // 2, num_layers - 3)
"""
PP_TESTS = ("not get_pp_group().is_last_rank", "not pp_group.is_last_rank")


def _value(loop: Loop, stream: str, *, first: bool) -> str:
    """The expression of the stream; a copy where later layers could write into it."""
    if stream == "hidden" or loop.residual is None:
        return f"{loop.hidden}.clone()"
    total = f"{loop.hidden} + {loop.residual}"
    if first or stream == "either":
        return f"{loop.hidden}.clone() if {loop.residual} is None else {total}"
    return total


def _append(value: str, indent: int) -> str:
    """`aux_hidden_states.append(value)`, broken as the formatter would at this column."""
    line = f"aux_hidden_states.append({value})"
    if indent + len(line) <= WIDTH:
        return line
    if indent + 4 + len(value) <= WIDTH:
        return f"aux_hidden_states.append(\n    {value}\n)"
    parts = value.replace(" if ", "\n    if ").replace(" else ", "\n    else ")
    return f"aux_hidden_states.append(\n    {parts}\n)"


def _indented(text: str, by: str = "    ") -> str:
    return "".join(f"{by}{line}\n" for line in text.splitlines())


class _Forward:
    """The parts of one decoder's forward, and the edit of them."""

    def __init__(self, module: cst.Module, forward: cst.FunctionDef, stream: str) -> None:
        self.module, self.forward, self.stream = module, forward, stream
        function = cast(ast.FunctionDef, tree(forward))
        self.loop = find_loop(function)
        self.body = body_of(forward)
        if len(self.body) != len(function.body):
            raise RefusedError("several statements of forward stand on one line")
        self.at = function.body.index(self.loop.node)
        self.node = cast(cst.For, self.body[self.at])
        self.piped = "self.start_layer" in plain(self.node.iter)
        taken = names_in(forward)
        if "aux_hidden_states" in taken:
            raise RefusedError("forward uses the name aux_hidden_states for something else")
        free = [name for name in ("idx", "layer_idx") if name not in taken]
        if self.loop.index is None and not free:
            raise RefusedError("forward uses the names idx and layer_idx for something else")
        self.index = self.loop.index or free[0]

    @property
    def place(self) -> int:
        """Where in the loop the stream is what the layer will take: at its top, or behind what
        still changes it (Solar's skip connections, Granite 4 Vision's deepstack)."""
        place = 0
        for index, statement in enumerate(self.loop.node.body):
            nodes = list(ast.walk(statement))
            if any(node is call for node in nodes for call in self.loop.calls):
                break
            names = [
                n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            ]
            if {self.loop.hidden, self.loop.residual} & set(names):
                place = index + 1
        return place

    @property
    def last(self) -> str:
        """The id behind this rank's last layer."""
        return "self.end_layer" if self.piped else f"len(self.{self.loop.container})"

    def edited(self) -> cst.FunctionDef:
        before, after = self.body[: self.at], self.body[self.at + 1 :]
        start, loop = self._loop()
        return with_body(self.forward, [*before, start, loop, *self._tail(after)])

    def _loop(self) -> tuple[cst.BaseStatement, cst.For]:
        """The empty list in front of the loop, and the loop with the capture at its top."""
        for part in (self.node.iter, self.node.target):
            if "#" in code(part):
                raise RefusedError("there are comments inside what the loop iterates")
        id_ = self.index
        text = f"for {plain(self.node.target)} in {plain(self.node.iter)}:\n"
        if self.loop.index is None:
            source = f"    {plain(self.node.iter)},\n"
            offset = "    start=self.start_layer,\n" if self.piped else ""
            text = f"for {id_}, {plain(self.node.target)} in enumerate(\n{source}{offset}):\n"
            if not offset:
                text = (
                    f"for {id_}, {plain(self.node.target)} in enumerate({source.strip()[:-1]}):\n"
                )
        elif not self.loop.absolute:
            id_ = f"self.start_layer + {id_}"
        append = _append(_value(self.loop, self.stream, first=True), 16)
        text += f"    if {id_} in self.{LAYERS}:\n{_indented(append, ' ' * 8)}"
        start, built = build(f"aux_hidden_states = []\n{text}", self.module)
        own = body_of(self.node)
        capturing = cast(cst.For, built)
        new = self.node.with_changes(
            leading_lines=[],
            body=self.node.body.with_changes(
                body=[*own[: self.place], *body_of(capturing), *own[self.place :]]
            ),
        )
        if self.loop.index is None:
            new = new.with_changes(target=capturing.target, iter=capturing.iter)
        first = cast(cst.SimpleStatementLine, start)
        return first.with_changes(leading_lines=self.node.leading_lines), new

    def _tail(self, after: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
        """What follows the loop, with the last state captured and the states returned."""
        if not after:
            raise RefusedError("forward ends with its loop")
        handing_over = [_hands_over(s) for s in after]
        cut = int(handing_over[0] and cast(cst.If, after[0]).orelse is None)
        returns = [i for i, s in enumerate(after) if _returns(s) and not handing_over[i]]
        if returns != [len(after) - 1]:
            raise RefusedError("forward does not end in its one return behind the loop")
        append = _append(_value(self.loop, self.stream, first=False), 12)
        text = f"if {self.last} in self.{LAYERS}:\n{_indented(append)}"
        last = cast(cst.If, build(text, self.module)[0])
        rest = list(after[cut:])
        blank = [cst.EmptyLine(indent=False)]
        head = rest[0]
        if isinstance(head, (cst.SimpleStatementLine, cst.If)) and cut:
            last = last.with_changes(leading_lines=head.leading_lines)
            rest[0] = head.with_changes(leading_lines=blank)
        else:
            last = last.with_changes(leading_lines=blank)
        return [*after[:cut], last, *rest[:-1], *self._return(rest[-1])]

    def _return(self, statement: cst.BaseStatement) -> list[cst.BaseStatement]:
        """`return x` as: return x and the states if there are any, else x."""
        node = cast(ast.Return, tree(statement))
        if node.value is None:
            raise RefusedError("forward returns nothing")
        leading = cast(cst.SimpleStatementLine, statement).leading_lines
        text, hidden = ast.unparse(node.value), self.loop.hidden
        if isinstance(node.value, ast.Name):
            hidden = text
        elif not isinstance(node.value, ast.Call):
            raise RefusedError(f"forward returns `{text}`")
        pair = f"if aux_hidden_states:\n    return {hidden}, aux_hidden_states"
        if isinstance(node.value, ast.Name):
            first = cast(cst.If, build(pair, self.module)[0])
            rest = [cast(cst.SimpleStatementLine, statement).with_changes(leading_lines=[])]
            return [first.with_changes(leading_lines=leading), *rest]
        new = build(f"{hidden} = {text}\n{pair}\nreturn {hidden}", self.module)
        first_line = cast(cst.SimpleStatementLine, new[0]).with_changes(leading_lines=leading)
        return [first_line, *new[1:]]


def _hands_over(statement: cst.BaseStatement) -> bool:
    """Whether this is the branch that returns the intermediate tensors to the next stage, and
    nothing else returns in it."""
    if not isinstance(statement, cst.If) or plain(statement.test) not in PP_TESTS:
        return False
    node = cast(ast.If, tree(statement))
    given = [n for s in node.body for n in ast.walk(s) if isinstance(n, ast.Return)]
    other = [n for s in node.orelse for n in ast.walk(s) if isinstance(n, ast.Return)]
    return len(given) == 1 and "IntermediateTensors" in ast.unparse(given[0]) and not other


def _returns(statement: cst.BaseStatement) -> bool:
    return any(isinstance(n, ast.Return) for n in ast.walk(tree(statement)))


def _with_attribute(cls: cst.ClassDef, module: cst.Module) -> cst.ClassDef:
    """The class attribute behind the other attributes, so that a subclass with its own
    `__init__` has it too (EagleMistralLarge3Model, 0.12.0 on)."""
    body = list(body_of(cls))
    first = next((i for i, s in enumerate(body) if not isinstance(s, cst.SimpleStatementLine)), 0)
    new = build(ATTRIBUTE, module)
    if first == 0:
        head = body[0]
        blank = [cst.EmptyLine(indent=False)]
        if not isinstance(head, (cst.FunctionDef, cst.ClassDef)):
            raise RefusedError("the class body does not begin with attributes or methods")
        return with_body(cls, [*new, head.with_changes(leading_lines=blank), *body[1:]])
    return with_body(cls, splice(body, first, new))


def transform(
    module: cst.Module, cls: str, stream: str = "sum", era: str = "methods"
) -> cst.Module:
    """`era`: "methods" of its own, the "mixin", or "inherited" where a base has the mixin.

    Raises RefusedError where the loop, or what follows it, has no structure it knows.
    """

    def change(node: cst.ClassDef) -> cst.ClassDef:
        index = method_index(node, "forward")
        if index is None:
            raise RefusedError("no method forward")
        known = Stream[stream.upper()]
        verdict = captures(cast(ast.FunctionDef, tree(body_of(node)[index])), known)
        if verdict:
            return node
        if verdict is False or LAYERS in plain(node):
            raise RefusedError("it captures aux hidden states in an unknown form")
        parts = _Forward(module, cast(cst.FunctionDef, body_of(node)[index]), stream)
        new = edit_method(node, "forward", lambda _: parts.edited())
        if era == "inherited":
            return new
        if era == "mixin":
            return headers.with_base(new, MIXIN, module.default_indent)
        first = "self.start_layer" if parts.piped else "0"
        text = METHODS.format(first=first, last=parts.last, container=parts.loop.container)
        return _with_attribute(insert_methods(new, "forward", text, module), module)

    changed = edit_class(module, cls, change)
    if changed is module or era != "mixin":
        return changed
    return imports.add_beside(changed, MIXIN, headers.INTERFACES)
