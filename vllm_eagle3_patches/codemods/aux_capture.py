"""Makes a decoder's `forward` return the residual stream on entry to each asked layer.

Known structure (`DeepseekV2Model`, 0.10.1-0.17.1): a loop over this rank's layers whose layer
defers its residual, intermediate tensors on all but the last rank, then the final norm.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import cast

import libcst as cst

from vllm_eagle3_patches.codemods.syntax import (
    body_of,
    build,
    code,
    edit_class,
    edit_method,
    insert_methods,
    matches,
    method_index,
    names_in,
    plain,
    splice,
    tree,
    with_body,
)
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.aux_capture import LAYERS, captures, layer_call

ITERATIONS = (
    "islice(self.layers, self.start_layer, self.end_layer)",  # 0.10.2 on
    "self.layers[self.start_layer:self.end_layer]",  # to 0.10.1.1
)
ATTRIBUTE = f"{LAYERS}: tuple[int, ...] = ()"
METHODS = """
def set_aux_hidden_state_layers(self, layers: tuple[int, ...]) -> None:
    reachable = range(self.start_layer, self.end_layer + 1)
    if len(set(layers)) != len(layers) or not set(layers) <= set(reachable):
        raise ValueError(
            f"EAGLE-3 aux hidden state layers {tuple(layers)} must be distinct and lie "
            f"in {self.start_layer}..{self.end_layer}, the layers of the last pipeline "
            "stage: aux hidden states do not cross pipeline stages."
        )
    self.aux_hidden_state_layers = tuple(layers)

def get_eagle3_aux_hidden_state_layers(self) -> tuple[int, ...]:
    num_layers = len(self.layers)
    return (2, num_layers // 2, num_layers - 3)
"""
LOOP = """
aux_hidden_states = []
for idx, layer in enumerate(
    {iteration},
    start=self.start_layer,
):
    if idx in self.aux_hidden_state_layers:
        aux_hidden_states.append(
            hidden_states.clone()
            if residual is None
            else hidden_states + residual
        )
"""
LAYER_RESULT = ("hidden_states", "residual")
LAST = """
if self.end_layer in self.aux_hidden_state_layers:
    aux_hidden_states.append(hidden_states + residual)
"""
NORM = "hidden_states, _ = self.norm(hidden_states, residual)"
RETURN = """
if aux_hidden_states:
    return hidden_states, aux_hidden_states
"""


def _loop_at(body: Sequence[cst.BaseStatement]) -> int:
    """Where the loop over the decoder layers stands, checked to be the one that is known."""
    loops = [i for i, s in enumerate(body) if isinstance(s, cst.For)]
    if len(loops) != 1:
        raise RefusedError(f"{len(loops)} loops in forward, where one over the layers was expected")
    loop = cast(cst.For, body[loops[0]])
    if plain(loop.target) != "layer" or loop.orelse is not None or loop.asynchronous is not None:
        raise RefusedError(f"the loop runs over `{plain(loop.target)}`, not `layer`")
    if plain(loop.iter) not in [ast.unparse(ast.parse(i)) for i in ITERATIONS]:
        raise RefusedError(f"the loop iterates `{plain(loop.iter)}`")
    if "#" in code(loop.iter):
        raise RefusedError("there are comments inside what the loop iterates")
    calls = body_of(loop)
    if len(calls) != 1 or layer_call(tree(calls[0])) != LAYER_RESULT:
        raise RefusedError("the loop's body is not one `hidden_states, residual = layer(...)`")
    return loops[0]


def _capture(module: cst.Module, forward: cst.FunctionDef) -> cst.FunctionDef:
    body = body_of(forward)
    at = _loop_at(body)
    after = body[at + 1 :]
    if not (
        len(after) == 3
        and isinstance(after[0], cst.If)
        and plain(after[0].test) == "not get_pp_group().is_last_rank"
        and after[0].orelse is None
        and "IntermediateTensors" in plain(after[0])
        and matches(after[1], NORM)
        and matches(after[2], "return hidden_states")
    ):
        raise RefusedError("after the loop there is not: intermediate tensors, final norm, return")
    taken = names_in(forward) & {"idx", "aux_hidden_states"}
    if taken:
        raise RefusedError(f"forward uses the name {taken.pop()} for something else")

    loop = cast(cst.For, body[at])
    text = LOOP.format(iteration=plain(loop.iter))
    start, built = build(text, module)
    capturing = cast(cst.For, built)
    comments = loop.leading_lines
    new_loop = loop.with_changes(
        leading_lines=[],
        target=capturing.target,
        iter=capturing.iter,
        body=loop.body.with_changes(body=[*body_of(capturing), *body_of(loop)]),
    )
    first = cast(cst.SimpleStatementLine, start).with_changes(leading_lines=comments)
    norm = cast(cst.SimpleStatementLine, after[1])
    last = cast(cst.If, build(LAST, module)[0]).with_changes(leading_lines=norm.leading_lines)
    blank = [cst.EmptyLine(indent=False)]
    tail = [
        after[0],
        last,
        norm.with_changes(leading_lines=blank),
        *build(RETURN, module),
        after[2],
    ]
    return with_body(forward, [*body[:at], first, new_loop, *tail])


def _with_attribute(cls: cst.ClassDef, module: cst.Module) -> cst.ClassDef:
    """The class attribute behind the other attributes, so that a subclass with its own
    `__init__` has it too (EagleMistralLarge3Model, 0.12.0 on)."""
    body = list(body_of(cls))
    first = next((i for i, s in enumerate(body) if not isinstance(s, cst.SimpleStatementLine)), 0)
    if first == 0:
        raise RefusedError("the class body does not begin with its attributes")
    return with_body(cls, splice(body, first, build(ATTRIBUTE, module)))


def transform(module: cst.Module, cls: str) -> cst.Module:
    """Raises RefusedError where the loop, or what follows it, is not the structure it knows."""

    def change(node: cst.ClassDef) -> cst.ClassDef:
        index = method_index(node, "forward")
        if index is None:
            raise RefusedError("no method forward")
        verdict = captures(cast(ast.FunctionDef, tree(body_of(node)[index])))
        if verdict:
            return node
        if verdict is False or LAYERS in plain(node):
            raise RefusedError("it captures aux hidden states in an unknown form")
        with_forward = edit_method(node, "forward", lambda f: _capture(module, f))
        return _with_attribute(insert_methods(with_forward, "forward", METHODS, module), module)

    return edit_class(module, cls, change)
