"""Deletes compiled copies of a module, which would otherwise run instead of its new source.

An unchecked-hash .pyc always does; one with a timestamp does when size and mtime match.
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from vllm_eagle3_patches.errors import WriteError


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
    name = re.compile(
        re.escape(source.stem) + r"\.[^.]+?(-pytest-\d[^./-]*(\.\d[^./-]*)*)?(\.opt-[^./]+)?\.pyc"
    )
    _delete(source.with_suffix(".pyc"))
    for folder in _folders(source):
        try:
            found = [entry for entry in folder.iterdir() if name.fullmatch(entry.name)]
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise _stale(folder, "the bytecode in it cannot be listed", error) from error
        for entry in found:
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
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.EPERM) and path.is_dir() and not path.is_symlink():
            return  # no module is loaded from a folder of that name
        raise _stale(path, "this bytecode of a changed module cannot be deleted", error) from error


def _stale(path: Path, what: str, error: OSError) -> WriteError:
    return WriteError(
        f"{what}: {error.strerror}; it would run in place of the source",
        where=path,
        next="run as a user who may delete it",
    )
