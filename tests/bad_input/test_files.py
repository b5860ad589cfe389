"""A file to be edited that is not what was installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command import (
    CONFIG,
    DECODER,
    LOADER,
    READ,
    TOUCHED,
    WRAPPER,
    call,
    difference,
    rerecord,
    snapshot,
    unchanged,
)

from bad_input.outcome import ALL, refused
from bad_input.users import as_user


def edited(data: bytes) -> bytes:
    return data + b"# mine\n"


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def emptied(data: bytes) -> bytes:
    return b""


def broken(data: bytes) -> bytes:
    return data + b"def broken(:\n"


def crlf(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def marked(data: bytes) -> bytes:
    return b"\xef\xbb\xbf" + data


def cut(data: bytes) -> bytes:
    return data.rstrip(b"\n")


def binary(data: bytes) -> bytes:
    return data + b"# \xff\xfe\n"


def with_nul(data: bytes) -> bytes:
    return data + b"\0"


def nested(data: bytes) -> bytes:
    return data + b"X = " + b"(" * 5000 + b")" * 5000 + b"\n"


HARMLESS = [edited, crlf, marked, cut]
HARMFUL = [truncated, emptied, broken, binary, with_nul, nested]
Change = Callable[[bytes], bytes]


# Each change to one file, and some to each.
CASES = [
    *((change, DECODER) for change in [*HARMLESS, *HARMFUL]),
    *((change, path) for change in (edited, truncated) for path in (CONFIG, WRAPPER, LOADER)),
]


def put(site: Path, path: str, change: Change) -> None:
    (site / path).write_bytes(change((site / path).read_bytes()))


@pytest.mark.parametrize(("change", "path"), CASES)
def test_a_file_of_someone_elses(site: Path, path: str, change: Change) -> None:
    put(site, path, change)
    for command in ("check", "diff", "apply"):
        refused(4, path, "pip install --force-reinstall", command=command, site=site)
    with unchanged(site):
        assert call("revert", site=site).code == 0


@pytest.mark.parametrize(("change", "path"), CASES)
def test_a_file_changed_after_apply(site: Path, path: str, change: Change) -> None:
    call("apply", site=site)
    put(site, path, change)
    for command in ALL:
        refused(4, path, "revert", "--force", command=command, site=site)


@pytest.mark.parametrize("path", [CONFIG, DECODER])
@pytest.mark.parametrize("change", [crlf, marked, cut])
def test_a_build_with_such_a_file(site: Path, path: str, change: Change) -> None:
    """What RECORD lists was installed: it is edited in its own line ends, and all comes back."""
    put(site, path, change)
    rerecord(site, path)
    installed = (site / path).read_bytes()
    before = snapshot(site)
    assert call("apply", site=site).code == 0
    patched = (site / path).read_bytes()
    assert patched != installed
    assert patched.startswith(b"\xef\xbb\xbf") == installed.startswith(b"\xef\xbb\xbf")
    assert patched.endswith(b"\n") == installed.endswith(b"\n")
    assert (b"\r\n" in patched) == (b"\r\n" in installed)
    assert patched.replace(b"\r\n", b"").count(b"\n") == (
        0 if change is crlf else patched.count(b"\n")
    )
    assert call("check", site=site).code == 0
    assert call("revert", site=site).code == 0
    assert difference(before, snapshot(site)) == set()


@pytest.mark.parametrize(("change", "path"), [*((c, DECODER) for c in HARMFUL), (broken, LOADER)])
@pytest.mark.parametrize("way", ["installed so", "--allow-modified"])
def test_a_build_with_a_file_that_is_no_python(
    site: Path, change: Change, path: str, way: str
) -> None:
    put(site, path, change)
    words = []
    if way == "installed so":
        rerecord(site, path)
    else:
        words = ["--allow-modified"]
    for command in ("diff", "apply"):
        done = refused(3, command=command, site=site, words=words)
        assert path in done.err or path.removesuffix(".py").replace("/", ".") in done.err
    with unchanged(site):
        done = call("check", *words, site=site)
    assert done.code == 3


@pytest.mark.parametrize("path", TOUCHED)
def test_a_missing_file(site: Path, path: str) -> None:
    (site / path).unlink()
    for command in ("check", "diff", "apply"):
        refused(4, path, command=command, site=site)


@pytest.mark.parametrize("path", ["vllm/model_executor/models/registry.py", READ[7]])
def test_a_missing_file_that_only_is_read(site: Path, path: str) -> None:
    (site / path).unlink()
    for command in ("check", "diff", "apply"):
        refused(4, path, command=command, site=site)


@pytest.mark.parametrize("path", TOUCHED)
def test_a_folder_where_a_file_should_be(site: Path, path: str) -> None:
    (site / path).unlink()
    (site / path).mkdir()
    for command in ("check", "diff", "apply"):
        refused(4, path, command=command, site=site)


def test_an_unreadable_file(site: Path) -> None:
    (site / DECODER).chmod(0)

    def action() -> None:
        for command in ("check", "diff", "apply --dry-run"):
            done = call(*command.split(), site=site)
            assert done.code in (4, 6), done
            assert DECODER in done.err
            assert "Permission denied" in done.err

    assert as_user(action, site) == 0
