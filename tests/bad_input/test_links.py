"""Files and folders of the package that are links."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from command import DECODER, TOUCHED, WRAPPER, call, difference, snapshot, unchanged

from bad_input.outcome import refused, works


@pytest.mark.parametrize("to", ["absolute", "relative"])
def test_a_symlink_to_a_package_cache(site: Path, to: str) -> None:
    """The link is replaced, its target stays as it is; revert gives the link back."""
    cache = site.parent / "cache"
    for path in TOUCHED:
        there = cache / path
        there.parent.mkdir(parents=True, exist_ok=True)
        (site / path).rename(there)
        near = os.path.relpath(there, (site / path).parent)
        (site / path).symlink_to(there if to == "absolute" else near)
    before = snapshot(site)
    with unchanged(cache):
        assert call("check", site=site).code == 1
        assert call("apply", site=site).code == 0
        assert not any((site / path).is_symlink() for path in TOUCHED)
        assert call("check", site=site).code == 0
        assert call("revert", site=site).code == 0
    assert difference(before, snapshot(site)) == set()


def test_a_hard_link_shared_with_a_package_cache(site: Path) -> None:
    cache, other = site.parent / "cache", site.parent / "other"
    for folder in (cache, other):
        shutil.copytree(site, folder, copy_function=os.link)
    with unchanged(cache, other):
        works(site)
        assert call("apply", site=site).code == 0
    assert all((other / path).stat().st_nlink == 2 for path in TOUCHED)


def test_a_link_that_leads_nowhere(site: Path) -> None:
    (site / DECODER).unlink()
    (site / DECODER).symlink_to("nowhere.py")
    for command in ("check", "diff", "apply"):
        refused(4, DECODER, command=command, site=site)


def test_a_folder_that_is_a_link_out_of_the_package(site: Path, tmp_path: Path) -> None:
    """As `..` would be: what lies there belongs to someone else."""
    folder, outside = (site / WRAPPER).parent, tmp_path / "env" / "outside"
    folder.rename(outside)
    folder.symlink_to(outside)
    for command in ("diff", "apply"):
        refused(3, "leads out of", command=command, site=site)
