"""The model files behind a class: its own, and those it imports classes from."""

from __future__ import annotations

import re

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.sources import Sources, module_path

PACKAGE = "vllm.model_executor.models"
IMPORT = re.compile(rf"^[ \t]*from ({re.escape(PACKAGE)}\.\w+|\.\w+) import", re.MULTILINE)
SHARED = ("/utils.py", "/interfaces.py", "/interfaces_base.py", "/registry.py", "/adapters.py")


def model_files(sources: Sources, path: str) -> list[str]:
    """`path` and every model file that is reached from it by imports, in that order."""
    found = [path]
    for module in found:
        for name in IMPORT.findall(snippets.text(sources, module)):
            dotted = f"{PACKAGE}{name}" if name.startswith(".") else name
            file = module_path(sources, dotted)
            if file is not None and file not in found and not file.endswith(SHARED):
                found.append(file)
    return found
