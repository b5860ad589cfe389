"""Gate `image-token`: the V1 drafter loader must find a multimodal target's image token id.

`load_model` reads `image_token_index` of the target's config unless a branch for the target's
class says otherwise; Kimi-K2.5's config calls it `media_placeholder_token_id` (upstream branch
from 0.18.0; 0.27.0 tests a tuple of names).
"""

from __future__ import annotations

import ast

from vllm_eagle3_patches.gates import proposer
from vllm_eagle3_patches.gates.base import Edit, Finding, State, worst
from vllm_eagle3_patches.protocol import claims
from vllm_eagle3_patches.sources import Sources
from vllm_eagle3_patches.structure import is_multimodal
from vllm_eagle3_patches.target import KIMI_K25, Target

NAME = "image-token"
KIMI_VALUE = "target_model.config.media_placeholder_token_id"
# No EAGLE-3 drafter class reads the value (0.11.2 to 0.33.0): it only has to be found.
ANY_VALUE = "getattr(target_model.config, 'image_token_id', None)"


def find_chain(method: ast.FunctionDef) -> ast.If | None:
    """The `if self.get_model_name(target_model) ...` chain that sets `image_token_index`."""
    for node in ast.walk(method):
        if (
            isinstance(node, ast.If)
            and "get_model_name" in ast.dump(node.test)
            and any("image_token_index" in ast.dump(s) for s in node.body)
        ):
            return node
    return None


def branches(chain: ast.If) -> list[tuple[ast.expr | None, list[ast.stmt]]]:
    """Each branch's test and body; the test of the final `else` is None."""
    found: list[tuple[ast.expr | None, list[ast.stmt]]] = [(chain.test, chain.body)]
    rest = chain.orelse
    while len(rest) == 1 and isinstance(rest[0], ast.If):
        found.append((rest[0].test, rest[0].body))
        rest = rest[0].orelse
    if rest:
        found.append((None, rest))
    return found


def branch_for(chain: ast.If, architecture: str) -> list[ast.stmt] | None:
    """The body of the branch whose test names the architecture."""
    for test, body in branches(chain):
        if test is not None and any(
            isinstance(node, ast.Constant) and node.value == architecture for node in ast.walk(test)
        ):
            return body
    return None


def value_for(architecture: str) -> str:
    """The expression of the target's image token id."""
    return KIMI_VALUE if architecture == KIMI_K25 else ANY_VALUE


def reads(body: list[ast.stmt], value: str) -> bool:
    """Whether the branch is just `self.model.config.image_token_index = <value>`."""
    wanted = f"self.model.config.image_token_index = {value}"
    return len(body) == 1 and ast.unparse(body[0]) == wanted


def _names(sources: Sources, target: Target) -> list[str]:
    """The class names of a multimodal target, which the chain tests; [] for a text-only one."""
    tops = [structure.top for structure in target.structures]
    return sorted({top.name for top in tops if is_multimodal(sources, top)})


def inspect(sources: Sources, target: Target) -> Finding:
    names = _names(sources, target)
    if not names:
        return Finding(NAME, State.NOT_APPLICABLE, detail="the target is text only")
    loader = proposer.find(sources)
    path, chain = loader.path, find_chain(loader.method)
    if chain is None:
        detail = "the image-token handler has a form this tool does not know"
        return Finding(NAME, State.REFUSED, path, loader.method.lineno, detail)
    return worst(_inspect(sources, target, path, chain, name) for name in names)


def _inspect(sources: Sources, target: Target, path: str, chain: ast.If, name: str) -> Finding:
    """The state for one class name."""
    body = branch_for(chain, name)
    if body is not None:
        if name != KIMI_K25 or reads(body, KIMI_VALUE):
            return Finding(NAME, State.NATIVE, path, body[0].lineno, f"a branch for {name}")
        detail = f"the branch for {name} does not read {KIMI_VALUE}"
        return Finding(NAME, State.REFUSED, path, body[0].lineno, detail)
    if name == KIMI_K25:
        detail = f"no branch for {name}: it has media_placeholder_token_id, not image_token_index"
        return Finding(NAME, State.CLOSED, path, chain.lineno, detail)
    if all(claims(sources, structure.top) for structure in target.structures):
        detail = f"upstream's {name} has image_token_index in its config"
        return Finding(NAME, State.NATIVE, path, chain.lineno, detail)
    detail = f"no branch for {name}, whose config may lack image_token_index"
    return Finding(NAME, State.CLOSED, path, chain.lineno, detail)


def edits(sources: Sources, target: Target) -> list[Edit]:
    names = _names(sources, target)
    if not names:
        return []
    loader = proposer.find(sources)
    chain = find_chain(loader.method)
    path, cls = loader.path, loader.cls
    return [
        Edit(NAME, NAME, path, (cls,), "image_token", {
            "cls": cls, "architecture": name, "value": value_for(name)
        })
        for name in names
        if chain is None or branch_for(chain, name) is None
    ]  # fmt: skip
