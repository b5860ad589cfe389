"""`aux-layers`: the layers the target is asked for are there, distinct, and those of training."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_eagle3_patches.preflight import aux, snippets
from vllm_eagle3_patches.preflight.aux import KEY, NESTED, V1_RUNNER, Ids
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.findings import Finding, error, warning

CLASS = "aux-layers"


def check(context: Context) -> Iterator[Finding]:
    layers = context.target.layers
    if context.built.uses_aux is False or layers is None or context.drafter.site is None:
        return
    checked: list[Ids] = []
    for runner, ids in context.taken_ids.items():
        if ids is None or ids in checked:
            continue
        checked.append(ids)
        sure = len(set(context.taken_ids.values())) == 1
        yield from _reachable(context, runner, ids, layers, sure)
    yield from _odd(context, layers)
    yield from _ignored(context, layers)
    yield from _unnamed(context)
    yield from _numbering(context, layers)


def _reachable(
    context: Context, runner: str, ids: Ids, layers: int, sure: bool
) -> Iterator[Finding]:
    """Duplicates, ids outside the model, and id 0 where upstream adds a missing residual."""
    make = error if sure else warning
    named = context.named_ids is not None and context.named_ids.ids == ids
    whose = f"named in config.json, {context.named_ids.key}," if named and context.named_ids else (
        f"that vLLM takes by default for {layers} layers,"
    )  # fmt: skip
    fix = f"write distinct ids between 1 and {layers - 1} as `{KEY}` into the drafter's config.json"
    if len(set(ids)) < len(ids):
        yield make(
            CLASS,
            f"of the aux layers {ids} {whose} {len(ids) - len(set(ids))} stand twice: the target "
            f"returns {len(set(ids))} states for an fc made for {len(ids)}",
            fix,
        )
    capture = context.capture
    outside = [i for i in ids if not 0 <= i <= layers]
    if outside:
        yield make(
            CLASS,
            f"the aux layers {ids} {whose} are not all in the target: it has {layers} layers, so "
            f"{_list(outside)} is never captured and fc gets too few states",
            fix,
        )
    if capture is None:
        return
    place = f"{capture.site.path}:{capture.line}"
    if 0 in ids and capture.first is None:
        yield make(
            CLASS,
            f"aux layer 0 is asked for, and {capture.site.name}.forward ({place}) adds a residual "
            "that is None before the first layer",
            "use ids from 1 on; 0 is the embedding, which the drafter has anyway",
        )
    elif 0 in ids and not capture.first:
        yield make(
            CLASS,
            f"aux layer 0 is asked for, and {capture.site.name}.forward ({place}) never captures "
            "it: fc gets too few states",
            "use ids from 1 on",
        )
    if layers in ids and not capture.last:
        yield make(
            CLASS,
            f"aux layer {layers} (the stream after the last layer) is asked for, and "
            f"{capture.site.name}.forward ({place}) captures only up to {layers - 1}",
            f"take a vLLM whose decoder captures it, or a drafter trained on layers below {layers}",
        )


def _odd(context: Context, layers: int) -> Iterator[Finding]:
    """Ids that are no list of numbers: what each runner makes of them."""
    fix = (
        f'write the ids as a list of numbers between 1 and {layers - 1}: "{KEY}": '
        f"{list(context.default_ids or (1,))} at the top level of the drafter's config.json"
    )
    for place in aux.odd(context.drafter.raw):
        whole = list(place.value) if isinstance(place.value, (list, tuple)) else None
        taken = [
            name
            for name, found in context.read_ids.items()
            if isinstance(found, tuple) and list(found) == whole
        ]
        text = f"{place.key} of the drafter's config.json is {place.value!r}, no list of layer ids"
        if not taken:
            passed = all(found is None for found in context.read_ids.values())
            does = (
                f"passes over it and takes {context.default_ids}" if passed else "may not read it"
            )
            yield warning(
                CLASS,
                f"{text}: vLLM {context.version} {does}",
                f"{fix}{_too_old(context)}",
            )
            continue
        sure = len(taken) == len(context.read_ids)
        yield (error if sure else warning)(
            CLASS,
            f"{text}: vLLM {context.version} takes it as it is, no layer's number equals "
            f"{', '.join(repr(i) for i in whole or () if not _is_number(i))}, and fc gets too few "
            "states",
            fix,
        )


def _is_number(value: object) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


def _list(ids: list[int]) -> str:
    return ", ".join(map(str, ids))


def _wrong(ids: Ids, layers: int) -> list[str]:
    """What is wrong with ids that are not read, so that writing them elsewhere would not do."""
    twice = sorted({i for i in ids if ids.count(i) > 1})
    outside = sorted({i for i in ids if not 0 <= i <= layers})
    said = [f"{_list(twice)} stand{'s' if len(twice) == 1 else ''} twice"] if twice else []
    return said + ([f"the target has no layer {_list(outside)}"] if outside else [])


def _ignored(context: Context, layers: int) -> Iterator[Finding]:
    """Ids in config.json that a runner of this version does not read."""
    named = context.named_ids
    if named is None:
        return
    wrong = _wrong(named.ids, layers)
    for runner, ids in context.taken_ids.items():
        if ids is None or ids == named.ids:
            continue
        other = [r for r in context.taken_ids if context.taken_ids[r] == named.ids]
        only = f" (the {other[0]} runner would)" if other else ""
        same = ids == _shifted(named.ids)
        if wrong:
            yield warning(
                CLASS,
                f"config.json names the aux layers {named.ids} under {named.key}, which the "
                f"{runner} runner of vLLM {context.version} does not read{only}: it takes {ids}. "
                f"Nor could it use them: {' and '.join(wrong)} ({layers} layers)",
                f"find the layers the head was trained on, distinct and between 1 and "
                f'{layers - 1}, and write them as "{KEY}" at the top level of the drafter\'s '
                f"config.json{_too_old(context)}",
            )
            return
        yield warning(
            CLASS,
            f"config.json names the aux layers {named.ids} under {named.key}, which the {runner} "
            f"runner of vLLM {context.version} does not read{only}: it takes {ids}"
            + (
                ", which are the same layers if the config counts outputs of layers, as "
                "Model-Optimizer does, and others if it counts as vLLM does"
                if same
                else ", and what the drafter gets is not what it was trained on"
            ),
            f'{"if it counts as vLLM does, " if same else ""}write "{KEY}": {list(named.ids)} at '
            "the top level of the drafter's config.json"
            f"{f', and leave `{NESTED}` as it is' if NESTED in named.key else ''}"
            f"{_too_old(context)}",
        )
        return


def _shifted(ids: Ids) -> Ids:
    return tuple(i + 1 for i in ids)


def _too_old(context: Context) -> str:
    """Up to 0.11.0 no key is read at all."""
    if KEY in snippets.text(context.sources, V1_RUNNER):
        return ""
    return "; this vLLM reads no such key at all, 0.11.1 was the first"


def _unnamed(context: Context) -> Iterator[Finding]:
    """No ids anywhere, from a trainer that lets them be chosen."""
    raw = context.drafter.raw
    if context.named_ids is not None or context.default_ids is None or aux.odd(raw):
        return
    # SafeAILab's own checkpoints (`LlamaForCausalLM`, no eagle_config) have these layers fixed:
    # eagle/model/modeling_llama_kv.py takes the streams on entry to 2, n//2 and n-3.  The
    # speculators library writes the ids where they are others (vLLM PR 25961).
    if context.drafter.original == "LlamaForCausalLM" and NESTED not in raw:
        return
    if context.drafter.speculators:
        return
    nested = raw.get(NESTED)
    if isinstance(nested, dict) and nested.get("use_aux_hidden_state") is False:
        return
    yield warning(
        CLASS,
        f"the drafter's config.json names no aux layers; vLLM takes {context.default_ids}, and "
        "nearly every draft is refused if the head was trained on others",
        f"look up the layers it was trained on, and write them as `{KEY}` into config.json",
    )


def _numbering(context: Context, layers: int) -> Iterator[Finding]:
    """Ids that count the outputs of layers; vLLM counts entries, so they are one too low.

    Model-Optimizer's default is [1, n//2-1, n-4] for the streams that vLLM calls [2, n//2, n-3]
    (`_set_default_aux_hidden_state_layers` in modelopt/torch/speculative).  SGLang tells the two
    numberings apart by the first id, 1 or 2 (sgl-project/sglang PR 25454).
    """
    named = context.named_ids
    if named is None:
        return
    ids, shifted = named.ids, _shifted(named.ids)
    if ids[:1] == (1,) and max(shifted) <= layers and ids in context.taken_ids.values():
        default = ", its default," if shifted == context.default_ids else ""
        yield warning(
            CLASS,
            f"the aux layers {ids} look like Model-Optimizer's numbering, which counts outputs of "
            f"layers; vLLM's id k is the entry of layer k, so {shifted}{default} may be meant "
            "(SGLang adds the one when the first id is 1)",
            f'if the drafter was trained with Model-Optimizer or SpecForge, write "{KEY}": '
            f"{list(shifted)}",
        )
    if list(ids) != sorted(ids):
        yield warning(
            CLASS,
            f"the aux layers {ids} are not in ascending order; vLLM puts the states together in "
            "the order of the layers",
            "right only if the head was trained with the states in ascending order",
        )
