"""A tiny installed vLLM to write in, and what a test needs to look at it from outside."""

from __future__ import annotations

import marshal
import os
import py_compile
import stat
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from fake_dist import fake_dist

from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.receipt import RECEIPT, PatchedFile, Receipt, load
from vllm_eagle3_patches.sources import sha256
from vllm_eagle3_patches.transaction import Transaction, read_state

INIT, A, B, C = "vllm/__init__.py", "vllm/a.py", "vllm/models/b.py", "vllm/models/c.py"
ORIGINAL = {INIT: b"", A: b"X = 'a0'\n", B: b"X = 'b0'\n", C: b"X = 'c0'\n"}
ONE = {A: b"X = 'a1'\n", B: b"X = 'b1'\n"}
TWO = {A: b"X = 'a2'\n", C: b"X = 'c2'\n"}  # B is to be as installed again


def fake_package(site: Path) -> Installation:
    """Lays it out: A is a 0444 file, B a link into a cache beside `site`, C hard-linked to it."""
    cache = site.parent / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    info = fake_dist(site, files=ORIGINAL, end="\r\n")
    (site / A).chmod(0o444)
    (cache / "b.py").write_bytes(ORIGINAL[B])
    (cache / "b.py").chmod(0o640)
    (site / B).unlink()
    (site / B).symlink_to("../../../cache/b.py")
    (cache / "c.py").unlink(missing_ok=True)
    (cache / "c.py").hardlink_to(site / C)
    return Installation("vllm", "0.17.1", site, site, info, False, "a test")


def digests(installation: Installation, *names: str) -> dict[str, str | None]:
    return {name: read_state(installation.path(name)).digest for name in names}


def plan(
    installation: Installation, new: Mapping[str, bytes]
) -> tuple[dict[str, bytes | PatchedFile], Receipt | None, dict[str, str | None]]:
    """The arguments of `commit` that take the installation to `new`; {} is a full revert."""
    old = load(installation.dist_info / RECEIPT)
    known = {file.path: file for file in old.files} if old else {}
    files = []
    for name, data in new.items():
        now = read_state(installation.path(name))
        file = known.get(name)
        original = now if file is None else None
        if original is not None and original.data is not None:
            file = PatchedFile(
                name, sha256(original.data), sha256(data), original.data, now.mode, now.link
            )
        assert file is not None
        files.append(PatchedFile(**{**vars(file), "after": sha256(data)}))
    contents: dict[str, bytes | PatchedFile] = {**known, **new}
    receipt = Receipt(
        "0.1.0", installation.version, "vllm", ("Kimi",), "codemod", ("edit",), tuple(files)
    )
    return contents, receipt if new else None, digests(installation, *contents)


def commit(installation: Installation, new: Mapping[str, bytes]) -> list[str]:
    """Takes the installation to `new`; {} is a full revert."""
    with Transaction(installation) as transaction:
        contents, receipt, expected = plan(installation, new)
        return transaction.commit(contents, receipt, expected=expected)


def recover(installation: Installation) -> list[str]:
    with Transaction(installation) as transaction:
        return transaction.recover()


def tree(folder: Path) -> dict[str, tuple[object, int]]:
    """Everything in it but bytecode: bytes or text of the link, and mode."""
    found: dict[str, tuple[object, int]] = {}
    for path in sorted(folder.rglob("*")):
        if "__pycache__" in path.parts:
            continue
        mode = path.lstat().st_mode
        content: object = None
        if stat.S_ISLNK(mode):
            content, mode = path.readlink(), 0
        elif stat.S_ISREG(mode):
            content = path.read_bytes()
        found[str(path.relative_to(folder))] = content, stat.S_IMODE(mode)
    return found


def compile_all(site: Path) -> None:
    """Gives every module bytecode that Python runs without a look at the source."""
    for name in ORIGINAL:
        py_compile.compile(
            str(site / name), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )


def stale(site: Path) -> list[str]:
    """The modules whose bytecode is not that of their source."""
    found = []
    for name in ORIGINAL:
        source = site / name
        pyc = source.parent / "__pycache__" / f"{source.stem}.{sys.implementation.cache_tag}.pyc"
        if pyc.exists():
            code = marshal.loads(pyc.read_bytes()[16:])
            if code.co_consts != compile(source.read_bytes(), name, "exec").co_consts:
                found.append(name)
    return found


CALLS = ("open", "write", "fsync", "fchmod", "fchown", "replace", "unlink", "symlink", "close")
Hook = Callable[[int, str, tuple[Any, ...], Callable[[], Any]], Any]


@contextmanager
def hooked(hook: Hook, *names: str) -> Iterator[None]:
    """Sends every system call that matters, or these, through `hook(number, name, args, call)`,
    numbered from 1 up."""
    numbers = count(1)

    def wrap(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **options: hook(
            next(numbers), name, args, lambda: real(*args, **options)
        )

    wrapped = {name: wrap(name, getattr(os, name)) for name in names or CALLS}
    with mock.patch.multiple(os, **wrapped):
        yield


def in_child(action: Callable[[], object]) -> int:
    """Runs it in a process of its own; the status that `waitpid` gives, 0 when all went well."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            action()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1]
