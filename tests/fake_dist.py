"""Tiny distributions, laid out as an installer would have left them."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

VLLM = {"vllm/__init__.py": b"raise SystemExit('vllm was imported')\n"}


def fake_dist(
    site: Path,
    name: str = "vllm",
    version: str = "0.17.1",
    *,
    files: dict[str, bytes] = VLLM,
    record: bytes | None = None,
    end: str = "\n",
    direct_url: object = None,
) -> Path:
    """Lays a distribution into the folder `site` and returns its dist-info.

    RECORD lists `files` with their hashes and the metadata as installers do, each row ending
    in `end` (uv: LF, pip: CRLF), or holds the bytes `record`. `direct_url` becomes
    direct_url.json.
    """
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    content = dict(files)
    content[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\nSummary: a fake\n\n"
        "Name: not-a-header\nVersion: 9\n"
    ).encode()
    content[f"{info}/INSTALLER"] = b"fake_dist\n"
    if direct_url is not None:
        content[f"{info}/direct_url.json"] = json.dumps(direct_url).encode()
    rows = [row(relative, data) for relative, data in content.items()]
    if record is None:
        record = "".join(line + end for line in [*rows, f"{info}/RECORD,,"]).encode()
    for relative, data in {**content, f"{info}/RECORD": record}.items():
        path = site / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return site / info


def row(relative: str, data: bytes) -> str:
    """The RECORD row of a file with these bytes, without its end."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    quoted = f'"{relative}"' if "," in relative else relative
    return f"{quoted},sha256={digest},{len(data)}"


def editable(site: Path, checkout: Path, name: str = "vllm", version: str = "0.1.dev1") -> Path:
    """Lays an editable install of `checkout` into `site`, as `pip install -e` does."""
    return fake_dist(
        site,
        name,
        version,
        files={f"__editable__.{name}-{version}.pth": f"{checkout}\n".encode()},
        direct_url={"dir_info": {"editable": True}, "url": checkout.as_uri()},
    )
