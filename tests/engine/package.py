"""Makes the product importable in an engine environment, where it is not installed."""

import importlib.util
from pathlib import Path

LAUNCHER = Path(__file__).parents[2] / "vllm_eagle3_patches/rehearsal/inside/launcher.py"


def reachable():
    spec = importlib.util.spec_from_file_location("rehearsal_launcher", LAUNCHER)
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
