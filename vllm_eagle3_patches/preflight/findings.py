"""What preflight finds: a class from a fixed list, how grave it is, what and where, and the fix."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from vllm_eagle3_patches.classes import CLASSES


class Severity(str, Enum):
    """`error`: it will surely fail.  `warning`: a risk, mostly of low acceptance."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True)
class Finding:
    """One fault of a combination of target, drafter, arguments and installed vLLM.

    Attributes:
        cls: one of `CLASSES`.
        severity: whether it surely fails.
        detail: what was found, and where.
        fix: what to do about it.
    """

    cls: str
    severity: Severity
    detail: str
    fix: str

    def __post_init__(self) -> None:
        if self.cls not in CLASSES:
            raise ValueError(f"no such class of finding: {self.cls}")

    def as_json(self) -> dict[str, str]:
        return {
            "class": self.cls,
            "severity": self.severity.value,
            "detail": self.detail,
            "fix": self.fix,
        }


def error(cls: str, detail: str, fix: str) -> Finding:
    return Finding(cls, Severity.ERROR, detail, fix)


def warning(cls: str, detail: str, fix: str) -> Finding:
    return Finding(cls, Severity.WARNING, detail, fix)
