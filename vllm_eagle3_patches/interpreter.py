"""Asks another Python where it looks for packages."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from vllm_eagle3_patches.errors import InstallationError, UsageError

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
