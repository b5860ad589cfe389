"""A throw-away copy of the vllm package with other bytes in some of its files.

Folders are made anew and files are symbolic links to the installed ones, bytecode included, so
that it costs a fraction of a second and nothing can be written to the installation: Python and
this tool replace files, and never write through a link.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from vllm_eagle3_patches.errors import WriteError
from vllm_eagle3_patches.installation import Installation

CACHE = "__pycache__"


def make(installation: Installation, contents: Mapping[str, bytes], folder: Path) -> Path:
    """Builds the copy below `folder`; returns what comes first on the child's path.

    Raises:
        WriteError: there is no room for it, or links cannot be made there.
    """
    changed = {Path(path) for path in contents}
    stale = {path.parent / CACHE / path.stem for path in changed}
    try:
        for here, folders, files in os.walk(installation.package):
            inside = Path("vllm") / Path(here).relative_to(installation.package)
            (folder / inside).mkdir(parents=True)
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in files:
                if inside / name in changed or inside / name.partition(".")[0] in stale:
                    continue
                (folder / inside / name).symlink_to(Path(here, name).absolute())
        for path, data in contents.items():
            (folder / path).write_bytes(data)
    except OSError as error:
        raise WriteError(f"no overlay: {error.strerror}", where=error.filename) from None
    return folder
