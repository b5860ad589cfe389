"""Finds the one installed vLLM by its metadata: nothing of it is imported or run.

The installation is the distribution that owns `vllm/__init__.py` in its RECORD, whatever its
name and version string are, or an editable checkout that a `vllm*` distribution points at.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vllm_eagle3_patches.errors import (
    InstallationError,
    IntegrityError,
    PatchError,
    RefusedError,
    UsageError,
)
from vllm_eagle3_patches.interpreter import executable, same, sys_path
from vllm_eagle3_patches.metadata import OWNED, headers, mentions_vllm
from vllm_eagle3_patches.record import Record


@dataclass(frozen=True)
class Installation:
    """One installed vLLM.

    Attributes:
        distribution: Name in its METADATA.
        version: Version in its METADATA, an opaque string.
        site_packages: the folder that the paths in RECORD are relative to.
        root: the folder that holds `vllm/`: the checkout if editable, else `site_packages`.
        dist_info: its `*.dist-info` folder.
        editable: whether it is an editable checkout.
        found_by: the interpreter, option or variable it was found through, in words.
    """

    distribution: str
    version: str
    site_packages: Path
    root: Path
    dist_info: Path
    editable: bool
    found_by: str

    @property
    def package(self) -> Path:
        """The folder `vllm/`."""
        return self.root / "vllm"

    @property
    def record_path(self) -> Path:
        """The file RECORD in its dist-info."""
        return self.dist_info / "RECORD"

    def path(self, relative: str) -> Path:
        """Where the file `relative` ("vllm/config/model.py") lies; it need not exist.

        Its last component is not resolved: a link there is the file meant.

        Raises:
            RefusedError: `relative` is not a plain path below `vllm/`, or a folder on its way
                is a link that leads out of `root`.
        """
        first, *others = relative.split("/")
        if first != "vllm" or not others or not {"", ".", ".."}.isdisjoint(others):
            raise RefusedError("this is not a path inside the vllm package", where=relative)
        if "\\" in relative or "\0" in relative:
            raise RefusedError("this path holds a backslash or a NUL", where=repr(relative))
        path = self.root / relative
        parent = Path(os.path.realpath(path.parent))
        if not parent.is_relative_to(os.path.realpath(self.root)):
            raise RefusedError(f"a link leads out of {self.root} to {parent}", where=path)
        return path


def find(
    *, python: str | None = None, site_packages: str | None = None, allow_editable: bool = False
) -> Installation:
    """The one vLLM of the environment meant.

    That is the interpreter `python` or the folder `site_packages` when given; else this
    interpreter; else, where there is none, VIRTUAL_ENV; else `python3` on PATH.

    Raises:
        UsageError: both options given, or what one names cannot be that.
        RefusedError: it is an editable checkout, and `allow_editable` is false.
        IntegrityError: metadata too damaged to tell what was installed.
        InstallationError: none, more than one, its files are gone, or `python` does not run.
    """
    looked: list[str] = []
    for found_by, folders in _places(python, site_packages, looked):
        there = _distinct(folders)
        found = _search(there, found_by)
        if len(found) > 1:
            raise InstallationError(
                "more than one vLLM: "
                + ", ".join(f"{i.distribution} {i.version} ({i.dist_info})" for i in found),
                where=found_by,
                next="uninstall all but one; --site-packages DIR picks one of several folders",
            )
        for installation in found:
            if installation.editable and not allow_editable:
                raise RefusedError(
                    f"{installation.distribution} {installation.version} is an editable checkout",
                    where=installation.root,
                    next="commit your own work there, then give --allow-editable",
                )
            return installation
        looked.append(f"{found_by}: no vLLM in {', '.join(folders) or 'its empty path'}")
        looked += [remark for folder in there for remark in _remarks(folder)]
    raise InstallationError(
        "no vLLM found",
        where="; ".join(looked),
        next="name its interpreter with --python EXE, or its folder with --site-packages DIR",
    )


def _places(
    python: str | None, site_packages: str | None, looked: list[str]
) -> Iterator[tuple[str, list[str]]]:
    """Each place to look at, in order, as (found_by, folders); adds the ones passed over to
    `looked`."""
    if python is not None and site_packages is not None:
        raise UsageError("--python and --site-packages exclude each other", next="give only one")
    if site_packages is not None:
        if not Path(site_packages).is_dir():
            raise UsageError("--site-packages is not a folder", where=site_packages)
        yield f"--site-packages {site_packages}", [site_packages]
        return
    if python is not None:
        yield f"--python {python}", sys_path(executable(python))
        return
    yield f"this interpreter, {sys.executable}", [p for p in sys.path if isinstance(p, str)]

    seen = [Path(sys.executable or os.devnull)]
    variable = os.environ.get("VIRTUAL_ENV")
    guesses = [(f"VIRTUAL_ENV={variable}", f"{variable}/bin/python")] if variable else []
    for found_by, name in [*guesses, ("python3 on PATH", "python3")]:
        try:
            exe = executable(name)
            if any(same(exe, other) for other in seen):
                continue
            seen.append(exe)
            folders = sys_path(exe)
        except PatchError as error:
            looked.append(f"{found_by}: {error.what}")
        else:
            yield f"{found_by}, {exe}", folders


def _distinct(folders: Iterable[str]) -> list[Path]:
    """The folders that exist, each once: `lib64` is often a link to `lib`."""
    distinct: dict[Path, Path] = {}
    for name in folders:
        try:
            folder = Path(name).absolute()
            if folder.is_dir():
                distinct.setdefault(folder.resolve(), folder)
        except (OSError, ValueError):  # the current folder is gone; a name that no file can have
            continue
    return list(distinct.values())


def _search(folders: list[Path], found_by: str) -> list[Installation]:
    """Every vLLM in the folders. Distributions of other names are read only where no `vllm*`
    is one, and what is wrong with one is raised only where none is sound."""
    infos = [info for folder in folders for info in sorted(folder.glob("*.dist-info"))]
    troubles: list[PatchError] = []
    for named in (True, False):
        found = []
        for info in infos:
            if info.name.lower().startswith("vllm") is named:
                try:
                    installation = _read(info, named, found_by)
                except PatchError as error:
                    troubles.append(error)
                else:
                    found += [installation] if installation else []
        if found:
            return found
    if troubles:
        raise troubles[0]
    return []


def _read(info: Path, named: bool, found_by: str) -> Installation | None:
    """The vLLM that this dist-info describes; None when it is of something else, or a ghost
    that an uninstall has left (no METADATA)."""
    site = info.parent
    if not named and not mentions_vllm(info / "RECORD"):
        return None
    try:
        name, version = _name_and_version(info / "METADATA")
    except FileNotFoundError:
        return None
    damage, owns = None, False
    try:
        record = Record.read(info / "RECORD")
        owns = record.owns(OWNED)
        damage = None if record.data.strip() else "is empty"
    except IntegrityError as error:
        damage = error.what
    # Without --ignore-installed pip first wants to uninstall, and cannot where RECORD is missing.
    reinstall = f"pip install --force-reinstall --ignore-installed --no-deps {name}=={version}"
    if owns:
        if not _is_file(site / OWNED):
            what = f"{name} {version} is installed, but its {OWNED} is gone"
            raise InstallationError(what, where=site, next=reinstall)
        return Installation(name, version, site, site, info, False, found_by)
    root = _checkout(info / "direct_url.json", reinstall) if named else None
    if root is not None:
        if _is_file(root / OWNED):
            return Installation(name, version, site, root, info, True, found_by)
        if name.lower() == "vllm":
            what = f"{name} {version} is an editable checkout, but its {OWNED} is gone"
            raise InstallationError(what, where=root, next="install it again")
    elif damage and _is_file(site / OWNED):
        raise IntegrityError(
            f"RECORD of {name} {version} {damage.removeprefix('RECORD ')}: "
            "it cannot be told what was installed",
            where=info / "RECORD",
            next=reinstall,
        )
    return None


def _remarks(folder: Path) -> Iterator[str]:
    """What in this folder may pass for a vLLM and is none."""
    for info in sorted(folder.glob("vllm*.dist-info")):
        if not _is_file(info / "METADATA"):
            yield f"{info} is what an uninstall has left: delete it, or uv will install nothing"
    for link in folder.glob("vllm.egg-link"):
        yield f"{link} is of `setup.py develop`: not supported, `pip install -e` is"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a folder on the way may not be entered
        return False


def _name_and_version(path: Path) -> tuple[str, str]:
    """The headers Name and Version.

    Raises:
        FileNotFoundError: there is no such file.
        IntegrityError: it cannot be read, or lacks one of them.
    """
    found = headers(path)
    name, version = (found.get(key, [""])[0] for key in ("name", "version"))
    if not name or not version:
        raise IntegrityError("METADATA names no distribution and version", where=path)
    return name, version


def _checkout(direct_url: Path, reinstall: str) -> Path | None:
    """The checkout of an editable install; None when it is not one.

    Raises:
        IntegrityError: the file says nothing that can be understood.
    """
    from urllib.parse import unquote, urlsplit

    try:
        content = json.loads(direct_url.read_bytes())
        url = urlsplit(str.strip(content["url"]))
        if content.get("dir_info", {}).get("editable") is not True:
            return None
        if url.scheme == "file" and url.netloc in ("", "localhost") and url.path[:1] == "/":
            return Path(unquote(url.path))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, LookupError, AttributeError):
        pass
    raise IntegrityError(
        "direct_url.json is garbled: it cannot be told whether this is an editable checkout",
        where=direct_url,
        next=reinstall,
    )
