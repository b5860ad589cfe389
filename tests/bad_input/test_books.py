"""A damaged RECORD, a damaged receipt."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from command import CONFIG, DECODER, RECEIPT, call, difference, info_of, lay, snapshot

from bad_input.outcome import ALL, refused, works

# ---- RECORD


def record(site: Path) -> Path:
    return info_of(site) / "RECORD"


GARBLED: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[:1001],
    "binary": lambda data: b"\x93NUMPY\x01\0" + data,
    "one column": lambda data: b"\n".join(row.split(b",")[0] for row in data.splitlines()),
    "open quote": lambda data: b'"' + data,
    "two hashes": lambda data: data + f"{CONFIG},sha256=AAAA,1\n".encode(),
}


@pytest.mark.parametrize("how", ["missing", *GARBLED])
def test_a_damaged_record(site: Path, how: str) -> None:
    if how == "missing":
        record(site).unlink()
    else:
        record(site).write_bytes(GARBLED[how](record(site).read_bytes()))
    for command in ALL:
        said = ("RECORD", str(info_of(site)), "--force-reinstall")
        refused(4, *said, command=command, site=site)


@pytest.mark.parametrize("how", ["missing", *GARBLED])
def test_a_record_damaged_after_apply(site: Path, how: str) -> None:
    call("apply", site=site)
    if how == "missing":
        record(site).unlink()
    else:
        record(site).write_bytes(GARBLED[how](record(site).read_bytes()))
    for command in ALL:
        refused(4, "RECORD", str(info_of(site)), command=command, site=site)


@pytest.mark.parametrize("command", ["check", "diff", "apply"])
@pytest.mark.parametrize("row", ["no row", "no hash", "md5", "no base64"])
def test_a_record_that_cannot_vouch_for_a_file(site: Path, row: str, command: str) -> None:
    rows = record(site).read_text().splitlines(keepends=True)
    [at] = [i for i, text in enumerate(rows) if text.startswith(f"{DECODER},")]
    rows[at] = {
        "no row": "",
        "no hash": f"{DECODER},,\n",
        "md5": f"{DECODER},md5=1B2M2Y8AsgTpgAmY7PhCfg,0\n",
        "no base64": f"{DECODER},sha256=!!!,0\n",
    }[row]
    record(site).write_text("".join(rows))
    refused(4, DECODER, command=command, site=site)


def test_a_record_with_crlf_and_blank_lines(site: Path) -> None:
    record(site).write_bytes(record(site).read_bytes().replace(b"\n", b"\r\n") + b"\r\n\r\n")
    works(site)


# ---- the receipt


def with_receipt(site: Path, change: Callable[[dict[str, object]], object]) -> None:
    """The receipt of an applied installation, changed."""
    call("apply", site=site)
    path = info_of(site) / RECEIPT
    content = json.loads(path.read_bytes())
    new = change(content)
    path.write_bytes(new if isinstance(new, bytes) else json.dumps(content).encode())


def files_of(content: dict[str, object]) -> list[dict[str, object]]:
    files = content["files"]
    assert isinstance(files, list)
    return files


RECEIPTS: dict[str, Callable[[dict[str, object]], object]] = {
    "empty": lambda _: b"",
    "cut": lambda content: json.dumps(content).encode()[:5000],
    "binary": lambda _: bytes(range(256)),
    "a list": lambda _: b"[]",
    "deep": lambda _: b"[" * 100_000,
    "a key less": lambda content: content.pop("files"),
    "a key more": lambda content: content.update(extra=1),
    "a path outside": lambda content: files_of(content)[0].update(path="../../etc/passwd"),
    "an absolute path": lambda content: files_of(content)[0].update(path="/etc/passwd"),
    "another original": lambda content: files_of(content)[0].update(
        original=files_of(content)[1]["original"]
    ),
    "no base64": lambda content: files_of(content)[0].update(original="%%%"),
    "a mode": lambda content: files_of(content)[0].update(mode=-1),
}


@pytest.mark.parametrize("how", RECEIPTS)
def test_a_garbled_receipt(site: Path, how: str) -> None:
    with_receipt(site, RECEIPTS[how])
    for command in ALL:
        said = ("garbled", str(info_of(site) / RECEIPT), "--force-reinstall")
        refused(4, *said, command=command, site=site)


def test_a_receipt_of_a_newer_tool(site: Path) -> None:
    with_receipt(site, lambda content: content.update(schema=3, tool_version="9.1"))
    for command in ALL:
        said = ("newer", "9.1", str(info_of(site) / RECEIPT), "upgrade vllm-eagle3-patches")
        refused(4, *said, command=command, site=site)


def test_a_receipt_for_other_bytes(site: Path) -> None:
    """As it is where the wheel was installed again by other means, in another version."""
    with_receipt(site, lambda content: files_of(content)[0].update(after="0" * 64))
    for command in ALL:
        refused(4, CONFIG, "changed by someone else", command=command, site=site)


def test_a_receipt_of_another_version(site: Path, tmp_path: Path) -> None:
    """An upgrade that left the receipt, and RECORD's row for it, behind."""
    call("apply", site=site)
    newer = lay(tmp_path / "newer", "0.16.0")
    shutil.copyfile(info_of(site) / RECEIPT, info_of(newer) / RECEIPT)
    with record(newer).open("a") as file:
        file.write(f"{info_of(newer).name}/{RECEIPT},,\n")
    for command in ALL:
        refused(4, "changed by someone else", command=command, site=newer)


def test_a_receipt_that_record_does_not_list(site: Path) -> None:
    """An installer has written RECORD anew: the same files, so the receipt holds."""
    before = snapshot(site)
    rows = record(site).read_bytes()
    call("apply", site=site)
    record(site).write_bytes(rows)
    refused(4, RECEIPT, "RECORD", command="check", site=site)
    assert call("apply", site=site).code == 0
    assert call("check", site=site).code == 0
    assert call("revert", site=site).code == 0
    assert difference(before, snapshot(site)) == set()
