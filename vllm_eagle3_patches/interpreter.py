"""Asks another Python where it looks for packages."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vllm_eagle3_patches.errors import InstallationError, PatchError, UsageError

if TYPE_CHECKING:
    from vllm_eagle3_patches.installation import Installation

_MARK = "vllm-eagle3-patches sys.path "  # .pth files may print lines of their own
_PROBE = f"import json, sys; sys.stdout.write('\\n{_MARK}' + json.dumps(sys.path) + '\\n')"
_SECONDS = 60.0


def executable(name: str) -> Path:
    """The program `name`, a path or a name on PATH, as an absolute path with no link resolved:
    a virtual environment's interpreter is a link to its base's.

    Raises:
        UsageError: there is no such program.
    """
    import shutil

    found = shutil.which(name)
    if found is None:
        raise UsageError(f"{name} does not exist or is not executable", where=name)
    return Path(found).absolute()


def same(one: Path, other: Path) -> bool:
    """Whether both are one program in one folder, as `bin/python` and `bin/python3` are."""
    return one.parent.resolve() == other.parent.resolve() and one.resolve() == other.resolve()


def sys_path(exe: Path) -> list[str]:
    """sys.path of the interpreter, which is run for it: in `/`, without input, 60 s at most.

    Raises:
        InstallationError: it cannot be run, fails, does not answer in time, or is no Python.
    """
    import signal
    import subprocess

    try:
        with subprocess.Popen(
            [exe, "-c", _PROBE],
            cwd="/",
            env={**os.environ, "PYTHONSAFEPATH": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        ) as process:
            try:
                out, err = process.communicate(timeout=_SECONDS)
            except BaseException:
                with suppress(OSError):  # children of a wrapper script hold the pipes open too
                    os.killpg(process.pid, signal.SIGKILL)
                raise
    except OSError as error:
        raise InstallationError(f"{exe} does not run: {error.strerror}", where=exe) from None
    except subprocess.TimeoutExpired:
        what = f"{exe} did not answer within {_SECONDS:g} s"
        raise InstallationError(what, where=exe) from None
    if process.returncode == 0:
        for line in out.decode(errors="replace").splitlines():
            if line.startswith(_MARK):
                # before 3.11 PYTHONSAFEPATH means nothing, and "" is the current folder
                return [folder for folder in json.loads(line[len(_MARK) :]) if folder]
    said = err.decode(errors="replace").split("\n")
    last = next((line for line in reversed(said) if line.strip()), "no word of its sys.path")
    what = f"{exe} does not run as a Python (exit {process.returncode}: {last.strip()})"
    raise InstallationError(what, where=exe)


def of(installation: Installation, python: str | None = None) -> Path:
    """The interpreter that runs an installation: `python`, else the one whose path has it.

    A folder given by --site-packages may be on no interpreter's path: then that of the
    environment it lies in (`ENV/lib/python3.12/site-packages`), else this one.

    Raises:
        UsageError: `python` is no program.
    """
    import sys

    if python is not None:
        return executable(python)
    names = []
    versioned, lib, environment = [*installation.site_packages.parents, *[Path("/")] * 3][:3]
    if versioned.name.startswith("python") and lib.name.startswith("lib"):
        names += [str(environment / "bin" / name) for name in ("python", "python3")]
    names.append(sys.executable)
    if variable := os.environ.get("VIRTUAL_ENV"):
        names.append(f"{variable}/bin/python")
    names.append("python3")
    usable = []
    for name in names:
        with suppress(PatchError):
            usable.append(executable(name))
            if not added(installation, usable[-1]):
                return usable[-1]
    if not usable:
        raise UsageError("no Python to run vLLM with", next="name it with --python EXE")
    return usable[0]


def added(installation: Installation, exe: Path) -> list[str]:
    """What must come on the interpreter's path for it to find the installation."""
    there = {os.path.realpath(folder) for folder in sys_path(exe)}
    folders = dict.fromkeys((installation.root, installation.site_packages))
    return [str(folder) for folder in folders if os.path.realpath(folder) not in there]
