"""What the `*.dist-info/METADATA` files of a site-packages folder say; nothing is imported.

Source: the core metadata specification (https://packaging.python.org/specifications/): headers up
to the first empty line, one `Requires-Dist` for each requirement.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vllm_eagle3_patches.errors import IntegrityError

OWNED = "vllm/__init__.py"  # what RECORD of the one that installed vLLM lists


def headers(metadata: Path) -> dict[str, list[str]]:
    """Name of a header in small letters -> its values, in order.

    Raises:
        FileNotFoundError: there is no such file.
        IntegrityError: it cannot be read.
    """
    try:
        text = metadata.read_bytes().decode(errors="replace")
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(metadata) from None
    except OSError as error:
        raise IntegrityError(f"METADATA cannot be read: {error.strerror}", where=metadata) from None
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line:
            break
        key, _, value = line.partition(":")
        found.setdefault(key.lower(), []).append(value.strip())
    return found


def mentions_vllm(record: Path) -> bool:
    try:
        return OWNED.encode() in record.read_bytes()
    except OSError:
        return False


def versions(site: Path, name: str) -> list[str]:
    """The versions of the distribution `name` (small letters, no dashes) in this folder: one,
    more where an uninstall went wrong, none where it is not there or an uninstall left a ghost."""
    return [
        known["version"][0]
        for _, known in _distributions(site, name)
        if known.get("version") and known.get("name", [""])[0].lower() == name
    ]


def vllm_requirements(site: Path) -> list[str]:
    """The requirements of the vLLM in this folder, where its distribution is a `vllm*`."""
    return [
        requirement
        for info, known in _distributions(site, "vllm*")
        if mentions_vllm(info / "RECORD")
        for requirement in known.get("requires-dist", [])
    ]


def _distributions(site: Path, name: str) -> Iterator[tuple[Path, dict[str, list[str]]]]:
    for info in sorted(site.glob(f"{name}-*.dist-info")):
        try:
            yield info, headers(info / "METADATA")
        except (FileNotFoundError, IntegrityError):
            continue
