"""The values of the interpreter: plain Python ones, objects with attributes, and the unknown."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field


class _Marker:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return self._name


UNKNOWN = _Marker("UNKNOWN")
MISSING = _Marker("MISSING")


@dataclass(frozen=True, eq=False)
class Made:
    """What a call gives that the interpreter does not follow, e.g. a layer's constructor."""

    name: str
    arguments: tuple[object, ...] = ()
    keywords: Mapping[str, object] = field(default_factory=dict)

    def argument(self, index: int, keyword: str) -> object:
        if keyword in self.keywords:
            return self.keywords[keyword]
        return self.arguments[index] if index < len(self.arguments) else MISSING


class Bag:
    """An object with attributes.

    An attribute it does not have is `MISSING` when `closed`, and not one of `unsure`, else
    `UNKNOWN`: the real object may get it from a place that is not looked at.
    """

    def __init__(
        self,
        attributes: Mapping[str, object] | None = None,
        *,
        closed: bool = False,
        unsure: Collection[str] = (),
    ) -> None:
        self.attributes = dict(attributes or {})
        self._closed = closed
        self._unsure = unsure

    def get(self, name: str) -> object:
        if name in self.attributes:
            return self.attributes[name]
        return MISSING if self._closed and name not in self._unsure else UNKNOWN

    def set(self, name: str, value: object) -> None:
        self.attributes[name] = value


def known(*values: object) -> bool:
    """Whether all are plain values, with nothing unknown inside a list, tuple or set."""
    for value in values:
        if isinstance(value, (_Marker, Made, Bag)):
            return False
        if isinstance(value, (list, tuple, set, frozenset)) and not known(*value):
            return False
    return True
