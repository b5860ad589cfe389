"""How large a twin may be: fields the rules keep have the real values, whatever those are.

The weights are estimated from field names, in float32, a little too high rather than too low; a
field of a name that is not known is held to the widths of real models.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.preflight.facts import integer, rope
from vllm_eagle3_patches.rehearsal import layers, rules, values
from vllm_eagle3_patches.rehearsal.drafter import DrafterTwin, states
from vllm_eagle3_patches.rehearsal.rules import Twin

WEIGHTS = 4 * 2**30  # bytes of one twin, float32, where one GPU or host has it
SHARED = 4  # GPUs whose memory is added up
WIDTH = 2**15  # of what the rules keep: head sizes, ranks, kernels, image sizes
POSITIONS = 2**24  # Llama-4-Scout's are 10485760; RoPE's cache has a row for each
WIDTHS = ("size", "dim", "rank", "head", "expert", "channel", "chans", "width", "height", "kernel",
          "embd", "state", "group", "inner", "d_model", "d_ff", "quer", "mel", "bins",
          "num_codebooks")  # fmt: skip
NO_WIDTHS = ("_id", "_index", "window", "chunk", "block", "max_", "sample", "pixel")
VOCABULARIES = ("vocab", "codebook_size")
LENGTHS = ("position", "seq_len", "sequence_len", "n_ctx")
PATCH = 14  # where a tower does not say
# Parts of a wrapper that vLLM's class of it does not build.
NOT_BUILT = ("talker_config", "token2wav_config", "code2wav_config")

Path = tuple[str, ...]
Field = tuple[str, int]  # a name and its number
Term = tuple[int, tuple[Field, ...]]  # parameters, and the fields they come from
FIX = (
    "correct the value, or fetch the config.json that belongs to this model; "
    "`vllm-eagle3-patch check --drafter` examines the pair without a twin"
)


def target(twin: Twin, parallel: int, where: object) -> None:
    """Whether the target's twin is small; `where` is the path of the real config.json.

    Raises:
        RefusedError: it is not; the message names the field.
    """
    _fields(twin.config, where)
    _positions(twin.text, where)
    fix = FIX
    if rules.first(twin.text, rules.HEADS) is None:
        fix = f"name num_attention_heads, without which the twin is as wide as the model; or {FIX}"
    _weights(_terms(twin.config, twin.parts), parallel, where, fix)


def drafter(twin: DrafterTwin, target: Twin, parallel: int, where: object) -> None:
    """Whether the drafter's twin is small; `where` is the path of the real config.json.

    Raises:
        RefusedError: it is not; the message names the field or the tensor.
    """
    inner = twin.config.get(values.LAYER)
    parts, layer = ((values.LAYER,), inner) if isinstance(inner, dict) else ((), twin.config)
    _fields(twin.config, where)
    _positions(layer, where)
    wide, own = (_largest(config, _is_hidden, 1) for config in (target.text, layer))
    count = ("aux states", states(twin.config))
    fc = count[1] * wide[1] * own[1], (count, own)
    _weights([fc, *_terms(twin.config, parts)], parallel, where)
    tensors = ((math.prod(t), ((name, n) for n in t)) for name, t in twin.tensors.items())
    _weights([(count, tuple(fields)) for count, fields in tensors], parallel, where)


def _parts(config: Mapping[str, Any]) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Every object in it, itself first, with the keys that lead there."""
    left: list[tuple[Path, Any]] = [((), config)]
    while left:
        path, value = left.pop()
        if isinstance(value, dict):
            yield path, value
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            if isinstance(inner, (dict, list)) and key not in NOT_BUILT:
                left.append(((*path, str(key)), inner))


def _numbers(value: object) -> list[int]:
    """A number, or a list of them for several layers or directions."""
    return [v for v in (value if isinstance(value, list) else [value]) if type(v) is int]


def _most(key: str) -> int | None:
    """The largest number that may stand under this name; None where it sizes no tensor."""
    if any(part in key for part in VOCABULARIES):
        return values.VOCABULARY
    if any(part in key for part in LENGTHS):
        return POSITIONS
    if any(part in key for part in NO_WIDTHS):
        return None
    if _is_depth(key):
        return values.LAYERS
    return WIDTH if any(part in key for part in WIDTHS) else None


def _fields(twin: Mapping[str, Any], where: object) -> None:
    for path, part in _parts(twin):
        for key, value in part.items():
            most, found = _most(key), max(_numbers(value), default=0)
            if most is not None and found > most:
                raise RefusedError(
                    f"`{values.shown('.'.join((*path, key)))}` would be {values.short(found)} in "
                    f"the twin; the most that a rehearsal makes is {most}",
                    where=where,
                    next=FIX,
                )


def _positions(text: Mapping[str, Any], where: object) -> None:
    """RoPE that is scaled has a cache for the scaled length."""
    settings = rope(text)
    for one in (settings, *(inner for inner in settings.values() if isinstance(inner, dict))):
        factor: Any = one.get("factor")
        length = integer(one, "original_max_position_embeddings")
        length = length or integer(text, "max_position_embeddings")
        if type(factor) not in (int, float) or length is None:
            continue
        if not factor <= POSITIONS / length:  # NaN too
            raise RefusedError(
                f"RoPE's `factor` is {values.short(factor)} over {length} positions; the most "
                f"positions that a rehearsal makes are {POSITIONS}",
                where=where,
                next=FIX,
            )


def _is_hidden(key: str) -> bool:
    return key in (*rules.HIDDEN, "embed_dim", "width") or key.endswith("hidden_size")


def _is_depth(key: str) -> bool:
    bare = key.removeprefix(rules.VISION_PREFIX)
    return bare in layers.COUNTS or (bare.endswith("layers") and "window" not in bare)


def _is_learned(key: str) -> bool:
    """A table of positions; those of RoPE are computed."""
    return "position" in key and "max_position_embeddings" not in key


def _largest(config: Mapping[str, Any], test: Callable[[str], bool], least: int) -> Field:
    found = [(number, key) for key in config if test(key) for number in _numbers(config[key])]
    number, key = max(found, default=(0, ""))
    return (key, number) if number > least else ("", least)


def _terms(config: Mapping[str, Any], text: Path) -> Iterator[Term]:
    """The parameters, as products of fields; `text` leads to the language model's part."""
    for path, part in _parts(config):
        holds_text = path == text[: len(path)] and path != text
        if not holds_text and any(_is_hidden(key) for key in part):
            yield from _of_part(part, is_text=path == text)


def _of_part(part: Mapping[str, Any], *, is_text: bool) -> Iterator[Term]:
    def largest(*names: str, least: int = 1) -> Field:
        return _largest(part, lambda key: any(name in key for name in names), least)

    hidden = _largest(part, _is_hidden, 1)
    # Other lists under such a name hold numbers of layers.
    depths = {k: v for k, v in part.items() if k in layers.COUNTS or not isinstance(v, list)}
    depth = _largest(depths, _is_depth, 1)
    heads = _largest(part, lambda key: key.endswith("heads") or key in rules.HEADS, 1)
    head = largest("head_dim", "head_size", least=max(hidden[1] // heads[1], 1))
    rank = largest("_rank")
    middle = _largest(part, lambda key: key.endswith(rules.MIDDLE), 1)
    experts = _largest(part, lambda key: "expert" in key and "per" not in key.split("_"), 1)
    positions = _largest(part, _is_learned if is_text else lambda key: "position" in key, 0)
    image, patch = largest("image_size", least=0), largest("patch_size", least=PATCH)
    patches = (image[1] // (integer(part, "patch_size") or PATCH)) ** 2

    def term(times: int, *fields: Field) -> Term:
        return times * math.prod(number for _, number in fields), fields

    yield term(2, largest(*VOCABULARIES), hidden)
    yield term(4, depth, hidden, heads, head)
    yield term(2, depth, rank, hidden)
    yield term(2, depth, rank, heads, head)
    yield term(3, depth, experts, middle, hidden)
    yield term(1, positions, hidden)
    yield patches * hidden[1], (image, hidden)
    yield term(3 * patch[1] ** 2, patch, hidden)


def _weights(terms: Iterable[Term], parallel: int, where: object, fix: str = FIX) -> None:
    found = list(terms)
    total, most = 4 * sum(count for count, _ in found), WEIGHTS * max(1, min(parallel, SHARED))
    if total <= most:
        return
    fields = [f"`{values.shown(key)}` {number}" for key, number in max(found)[1] if key]
    raise RefusedError(
        f"the twin would have {total / 2**30:.1f} GiB of weights, most of them by "
        f"{', '.join(fields)}; the most that a rehearsal makes are {most // 2**30} GiB",
        where=where,
        next=fix,
    )
