"""A log, read as the command reads it."""

from __future__ import annotations

from vllm_eagle3_patches.explain.report import Report, report
from vllm_eagle3_patches.explain.scan import Scanner


def read(log: bytes, piece: int = 1 << 20) -> Report:
    scanner = Scanner()
    for at in range(0, len(log), piece):
        scanner.feed(log[at : at + piece])
    scanner.finish()
    return report(scanner.story)


def class_of(log: bytes) -> str | None:
    cause = read(log).cause
    return cause and cause.kind
