"""In a worker process that vLLM spawned: watch there too."""

from __future__ import annotations

from vllm_eagle3_patches.rehearsal.inside import watch


def install(path: str) -> None:
    watch.install(path)
