"""Runs what another user runs; the tests are root's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from fake_package import in_child

from vllm_eagle3_patches import codemods

NOBODY = 65534
MODULES = list(iter_modules(codemods.__path__))


def as_user(action: Callable[[], object], site: Path, user: int = NOBODY) -> int:
    """What `waitpid` says of a child without root's rights that runs the action on `site`.

    What the commands import only when they need it is imported here: the child may be a user who
    cannot read the standard library, where that lies in root's home.
    """
    assert os.getuid() == 0, "these tests drop root's rights, so they need them"
    for name in ("proofs", "transaction", "series", *(f"codemods.{m.name}" for m in MODULES)):
        import_module(f"vllm_eagle3_patches.{name}")
    import_module("unidiff.patch")

    def dropped() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(user)
        action()

    with _reachable(site):
        return in_child(dropped)


@contextmanager
def _reachable(site: Path) -> Iterator[None]:
    """pytest's folders are root's alone; the package's own are not touched."""
    folders = [folder for folder in site.parents if folder.stat().st_uid == os.getuid()]
    modes = [folder.stat().st_mode for folder in folders]
    for folder in folders:
        folder.chmod(0o755)
    yield
    for folder, mode in zip(folders, modes, strict=True):
        folder.chmod(mode)
