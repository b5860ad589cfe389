"""A model's folder and its config.json: a path, or a Hugging Face id in the local cache."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

from vllm_eagle3_patches.errors import UsageError
from vllm_eagle3_patches.preflight.safetensors import LFS_POINTER
from vllm_eagle3_patches.target import MAX_CONFIG, _hub_snapshot

CONFIG = "config.json"
WEIGHTS = "model.safetensors (or model.safetensors.index.json and the shards it names)"


def locate(name: str, *, what: str, files: str) -> Path:
    """The folder of a model that must be there.

    Raises:
        UsageError: it is neither a folder nor in the cache; the message says what to fetch.
    """
    try:
        path = Path(name).expanduser()
        found, is_folder = path.exists(), path.is_dir()
    except (OSError, RuntimeError) as error:  # too long, not to be looked at, `~nobody`
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"the {what} is no folder: {why}", where=name[:200]) from None
    if is_folder:
        return path
    if found or name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise UsageError(f"the {what} is not a folder", where=name)
    snapshot = _hub_snapshot(name)
    if snapshot is None:
        raise UsageError(
            f"the {what} {name} is neither a folder nor in the local Hugging Face cache",
            next=f"fetch {files} of {name} into a folder and give that; or: hf download {name}",
        )
    return snapshot


def read_config(folder: Path, *, what: str) -> dict[str, Any]:
    """The folder's config.json.

    Raises:
        UsageError: it is missing, too large, or not a JSON object.
    """
    path = folder / CONFIG
    try:
        status = path.stat()
        size = status.st_size
        if not stat.S_ISREG(status.st_mode):  # a pipe would be waited for, a device never ends
            raise UsageError(f"the {what}'s config.json is not a file", where=path)
        if size > MAX_CONFIG:
            raise UsageError(f"config.json is {size} bytes; no model's is that large", where=path)
        data = path.read_bytes()
        if data.startswith(LFS_POINTER):
            raise UsageError(
                f"the {what}'s config.json is a Git LFS pointer, not the file",
                where=path,
                next="run `git lfs pull` in that folder, or fetch the file itself",
            )
        config = json.loads(data)
    except FileNotFoundError:
        raise UsageError(
            f"the {what}'s folder has no config.json",
            where=path,
            next=f"a {what} folder needs {CONFIG} and {WEIGHTS}",
        ) from None
    except OSError as error:
        raise UsageError(f"config.json cannot be read: {error.strerror}", where=path) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"config.json is not JSON: {error}", where=path) from None
    if not isinstance(config, dict):
        raise UsageError("config.json is not a JSON object", where=path)
    return config
