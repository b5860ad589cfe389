"""`aux-shape`: the aux states that arrive at the drafter fit its `fc`.

`fc` is as wide as the drafter's config says, its tensor as wide as it was trained, and what
arrives is as many states as the target captures, each as wide as the target.
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_eagle3_patches.preflight.aux import KEY, NESTED
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.findings import Finding, error, warning

CLASS = "aux-shape"


def check(context: Context) -> Iterator[Finding]:
    built = context.built
    if built.uses_aux is False:
        return
    tensor = context.tensor("fc.weight")
    plain = tensor is not None and len(tensor.shape) == 2 and tensor.dtype[:1] in "BF"
    if built.fc_input is not None and tensor is not None and plain:
        columns = tensor.shape[1]
        if columns != built.fc_input:
            yield error(
                CLASS,
                f"fc.weight has {columns} columns, {_class(context)} makes an fc of "
                f"{built.fc_input} from this config (aux states times target_hidden_size)",
                _width_fix(context, columns),
            )
            return
        if built.fc_output is not None and tensor.shape[0] != built.fc_output:
            yield error(
                CLASS,
                f"fc.weight has {tensor.shape[0]} rows, hidden_size is {built.fc_output}",
                "the config.json is not this checkpoint's: fetch both again",
            )
    yield from _arriving(context)


def _class(context: Context) -> str:
    site = context.drafter.site
    return f"{site.name} of vLLM {context.version}" if site else f"vLLM {context.version}"


def _width_fix(context: Context, columns: int) -> str:
    hidden = context.target.hidden_size
    if hidden and columns % hidden == 0:
        count = columns // hidden
        named = context.named_ids
        if named is not None and len(named.ids) == count:
            return (
                f"the head was trained on {count} states of width {hidden}: this class counts "
                f'them by "{NESTED}": {{"{KEY}": …}} or "num_aux_hidden_states" where it reads '
                f"these, else it takes 3; give target_hidden_size {hidden} too if it is missing"
            )
        return (
            f"the head was trained on {count} states of width {hidden}: name the {count} layer "
            f"ids, and target_hidden_size {hidden}, in the drafter's config.json"
        )
    return "the head was trained for another target: its width is no multiple of the target's"


def _arriving(context: Context) -> Iterator[Finding]:
    """The width is known only by what the class builds; the tensor agrees with it by now."""
    wanted, hidden = context.built.fc_input, context.target.hidden_size
    layers = context.target.layers
    if wanted is None or hidden is None or layers is None:
        return
    own = context.drafter.config.get(
        "target_hidden_size", context.drafter.config.get("hidden_size")
    )
    if wanted % hidden:
        yield error(
            CLASS,
            f"fc takes {wanted} values, no multiple of the target's hidden size {hidden}: the "
            f"drafter was made for one of {own}",
            f"take the drafter of this target, or write target_hidden_size {hidden} if only the "
            "config is wrong",
        )
        return
    bad = {
        name: ids
        for name, ids in context.taken_ids.items()
        if ids and len(set(ids)) * hidden != wanted
    }
    if not bad:
        return
    name, ids = next(iter(bad.items()))
    # Duplicates and ids out of range have their own findings; here the count itself is wrong.
    if len(ids) * hidden == wanted:
        return
    make = error if len(bad) == len(context.taken_ids) else warning
    yield make(
        CLASS,
        f"the {name} runner of vLLM {context.version} takes {len(ids)} aux states {ids} of width "
        f"{hidden}, together {len(ids) * hidden}; fc takes {wanted}",
        f"write the {wanted // hidden} ids the head was trained on as a top-level `{KEY}` into "
        "the drafter's config.json",
    )
