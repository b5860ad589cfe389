"""Looks up what a gate's finding points at."""

from __future__ import annotations

from real import sources

from vllm_eagle3_patches.gates.base import Finding


def line(version: str, finding: Finding) -> str:
    """The source line that the finding names, stripped."""
    assert finding.file is not None and finding.line is not None
    return sources(version).data(finding.file).decode().splitlines()[finding.line - 1].strip()
