"""Started in the target's interpreter: makes this package importable there, and runs one part.

    python launcher.py PART REQUEST.json

Only the package's own folder becomes importable, not the packages that lie beside it.  Worker
processes that vLLM spawns come through here too, as `__mp_main__`.
"""

import importlib
import sys
import types
from pathlib import Path

PACKAGE = "vllm_eagle3_patches"


def reachable() -> None:
    """`import vllm_eagle3_patches.…` works from here on."""
    if PACKAGE not in sys.modules:
        package = types.ModuleType(PACKAGE)
        package.__path__ = [str(Path(__file__).resolve().parents[2])]
        sys.modules[PACKAGE] = package
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [folder for folder in sys.path if folder != here]


reachable()
if __name__ == "__mp_main__":
    importlib.import_module(f"{PACKAGE}.rehearsal.inside.worker").install(sys.argv[2])
if __name__ == "__main__":
    # Before anything that takes long: the parent may be gone by then.
    alive = importlib.import_module(f"{PACKAGE}.rehearsal.inside.alive")
    alive.end_with_parent(Path(sys.argv[2]).parent)
    importlib.import_module(f"{PACKAGE}.rehearsal.inside.{sys.argv[1]}").main(sys.argv[2])
