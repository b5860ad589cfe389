"""The value of one option, taken as vLLM's parser and the config field behind it take it."""

from __future__ import annotations

import re
from collections.abc import Callable

from vllm_eagle3_patches.preflight.annotations import Field
from vllm_eagle3_patches.preflight.declared import Declared, Option, Takes

NUMBER = re.compile(r"\d+(\.\d+)?[kKmMgGtT]|[+-]?\d+")
# Before 0.24.0 the fields have no bound; a size of 0 divides by zero (`get_pp_indices`,
# `verify_with_parallel_config`), a negative one makes no shape for the ranks.
RANKS = ("tensor_parallel_size", "pipeline_parallel_size")
TRUTHS = frozenset({"1", "0", "t", "f", "y", "n", "on", "off", "yes", "no", "true", "false"})
SAYS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "ge": ("at least", lambda value, bound: value >= bound),
    "gt": ("above", lambda value, bound: value > bound),
    "le": ("at most", lambda value, bound: value <= bound),
    "lt": ("below", lambda value, bound: value < bound),
}


def refused(declared: Declared, option: Option, value: str) -> str | None:
    """What vLLM wants in place of this value; None where it takes it, or that is not known."""
    field = option.field
    if field is None or option.takes is not Takes.ONE:
        return None
    if "None" in field.kinds and value in ("", "None"):
        return None
    if field.choices is not None:
        return None if value in field.choices else f"one of {', '.join(field.choices)}"
    kinds = field.kinds - {"None"}
    if kinds == {"int"}:
        return _integer(declared, field, value)
    if kinds <= {"float", "int"} and kinds:
        return _number(field, value)
    return None


def _integer(declared: Declared, field: Field, value: str) -> str | None:
    if f'"{field.name}"' in declared.readable_numbers.replace("'", '"'):
        automatic = "human_readable_int_or_auto" in declared.readable_numbers
        if automatic and field.name == "max_model_len" and value.strip().lower() == "auto":
            return None
        return None if NUMBER.fullmatch(value.strip()) else "a whole number, such as 8192 or 32k"
    try:
        number = int(value)
    except ValueError:
        return "a whole number"
    if field.name in RANKS and number < 1:
        return "at least 1"
    return _outside(field, number)


def _number(field: Field, value: str) -> str | None:
    try:
        return _outside(field, float(value))
    except ValueError:
        return "a number"


def refused_json(field: Field, value: object) -> str | None:
    """The same for a value of a JSON option, which pydantic validates and converts (lax mode)."""
    kinds = field.kinds - {"None"}
    if value is None or not field.validated:
        return None
    if field.choices is not None:
        return None if value in field.choices else f"one of {', '.join(field.choices)}"
    if kinds == {"str"}:
        return None if isinstance(value, str) else "a string"
    if kinds == {"bool"}:
        fits = isinstance(value, bool) or str(value).lower() in TRUTHS or value in (0, 1)
        return None if fits else "true or false"
    if kinds in ({"int"}, {"float"}, {"int", "float"}):
        whole = kinds == {"int"}
        number = _json_number(value)
        if number is None or (whole and not number.is_integer()):
            return "a whole number" if whole else "a number"
        return _outside(field, number)
    return None


def _json_number(value: object) -> float | None:
    if not isinstance(value, (int, float, str)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _outside(field: Field, value: float) -> str | None:
    for name, bound in field.bounds:
        words, holds = SAYS[name]
        if not holds(value, bound):
            return f"{words} {bound:g}"
    return None
