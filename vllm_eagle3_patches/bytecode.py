"""Deletes compiled copies of a module, which would otherwise run instead of its new source.

An unchecked-hash .pyc always does; one with a timestamp does when size and mtime match.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from vllm_eagle3_patches.files import delete, naming


def remove(source: Path) -> None:
    """Deletes every compiled copy of the module `source`: of all interpreters and optimisation
    levels, pytest's, the one beside it, and those below `sys.pycache_prefix` and
    PYTHONPYCACHEPREFIX. Does nothing for a file that is not a `.py`.

    Raises:
        WriteError: one cannot be deleted, or a folder of them cannot be listed.
    """
    if source.suffix != ".py":
        return
    # As `importlib.util.cache_from_source` names it: one tag without a dot, then perhaps a level.
    # pytest's tag ends in its version, which has dots.
    name = re.compile(re.escape(source.stem) + r"\.[^.]+?(-pytest-\d[^-]*)?(\.opt-[^.]+)?\.pyc")
    _delete(source.with_suffix(".pyc"))
    for folder in _folders(source):
        with (
            naming(folder, "may hold bytecode of a changed module, and cannot be listed"),
            suppress(FileNotFoundError, NotADirectoryError),
        ):
            for entry in list(folder.iterdir()):
                if name.fullmatch(entry.name):
                    _delete(entry)


def _folders(source: Path) -> Iterator[Path]:
    """Every folder that may hold compiled copies of it."""
    yield source.parent / "__pycache__"
    prefixes = {sys.pycache_prefix, os.environ.get("PYTHONPYCACHEPREFIX")}
    # An import knows the folder as sys.path spells it, which may be through a link.
    parents = {source.parent.absolute(), source.parent.resolve()}
    for prefix in filter(None, prefixes):
        for parent in parents:
            yield Path(prefix, *parent.parts[1:])


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        return  # no module is loaded from a folder of that name
    delete(path, "is bytecode that would run in place of its source, and cannot be removed")
