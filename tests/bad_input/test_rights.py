"""Who may not write, and a full disk."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path

import pytest
from command import LOADER, TOOL, Done, call, info_of, unchanged

from bad_input.outcome import WRITING, works
from bad_input.users import as_user

# ---- who may not write


def test_readers_need_no_rights(site: Path) -> None:

    def action() -> None:
        with unchanged(site):
            assert call("check", site=site).code == 1
            assert call("diff", site=site).code == 0
            assert call("apply", "--dry-run", site=site).code == 0

    assert as_user(action, site) == 0


@pytest.mark.parametrize("command", WRITING)
@pytest.mark.parametrize("locked", ["all", "package", "dist-info", "one folder"])
def test_the_package_belongs_to_someone_else(site: Path, command: str, locked: str) -> None:
    if command == "revert":
        call("apply", site=site)
    own = [] if locked == "all" else [site, *site.rglob("*")]
    for path in own:
        os.chown(path, 65534, 65534)
    theirs = {
        "all": [],
        "package": [path for path in own if "dist-info" not in path.name],
        "dist-info": [info_of(site)],
        "one folder": [(site / LOADER).parent],
    }[locked]
    for path in theirs:
        os.chown(path, 0, 0)

    def action() -> None:
        with unchanged(site):
            done = call(command, site=site)
        assert done.code == 6, done
        assert "cannot be written" in done.err
        assert str(site) in done.err
        assert "run as a user who may write there" in done.err
        assert "Traceback" not in done.err

    assert as_user(action, site) == 0


def test_a_read_only_file_in_a_folder_of_ones_own(site: Path) -> None:
    """Not in the way: the file is replaced, and its mode kept."""
    for path in [site, *site.rglob("*")]:
        os.chown(path, 65534, 65534)
        if path.is_file():
            path.chmod(0o444)
    assert as_user(lambda: works(site), site) == 0


# ---- a full disk


def limited(size: int, *words: str, site: Path) -> Done:
    """The command where no file may grow past `size`: write(2) fails as on a full disk."""
    done = subprocess.run(
        [*TOOL, *words, "--site-packages", str(site)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size)),
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.mark.parametrize("command", WRITING)
@pytest.mark.parametrize("size", [0, 1000, 20_000, 60_000])
def test_no_room(site: Path, command: str, size: int) -> None:
    """The receipt is some 60 kB, RECORD 200 kB, the files 17 to 80 kB."""
    if command == "revert":
        call("apply", site=site)
    with unchanged(site):
        done = limited(size, command, site=site)
    assert done.code == 6
    assert "nothing was changed" in done.err
    assert "cannot be written: File too large (EFBIG)" in done.err
    assert str(site) in done.err
    assert call(command, site=site).code == 0
