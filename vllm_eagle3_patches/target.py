"""The target: the model that is to get EAGLE-3."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vllm_eagle3_patches import protocol, registry
from vllm_eagle3_patches.errors import RefusedError, UsageError
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.sources import Sources
from vllm_eagle3_patches.structure import Structure, of_class, variants, with_language

KIMI_K25 = "KimiK25ForConditionalGeneration"

# Architecture -> the model_type of its `hf_text_config`, where a name alone has to do.
# Kimi-K2.5: `text_config.model_type` of the published config.json.
MODEL_TYPES = {
    KIMI_K25: "kimi_k2",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "DeepseekV32ForCausalLM": "deepseek_v32",
}
# config.json without `architectures`: model_type -> architecture.
ARCHITECTURES = {
    "kimi_k25": KIMI_K25,
    "kimi_k2": "DeepseekV3ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
}
# The release from which upstream has EAGLE-3 for these targets (their classes in 0.18.0 inherit
# SupportsEagle3); only for messages, the source decides.
NATIVE_SINCE = dict.fromkeys(MODEL_TYPES, "0.18.0")
NAMED = (
    f"--model {KIMI_K25} for Kimi-K2.5, --model DeepseekV3ForCausalLM for text-only DeepSeek-V3 "
    "and Kimi-K2"
)
MODEL_TYPE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")  # it becomes text of vLLM's own source
MAX_CONFIG = 16 * 1024 * 1024  # bytes; published config.json files are below 100 kB


@dataclass(frozen=True)
class Target:
    """A model as the installed vLLM knows it.

    Attributes:
        architecture: the name in vLLM's registry.
        model_type: of the `hf_text_config`; None where only a name was given and it is not known.
        structures: how it is built; more than one where the platform chooses between files.
        language: the architecture of its language model, where a config named it.
    """

    architecture: str
    model_type: str | None
    structures: tuple[Structure, ...]
    language: str | None = None

    @property
    def is_wrapper(self) -> bool:
        return any(structure.is_wrapper for structure in self.structures)

    @property
    def request(self) -> Request:
        """What finds it again."""
        return Request(self.architecture, self.model_type, self.language)


@dataclass(frozen=True)
class Request:
    """What the user named, before it is looked up in the installed vLLM.

    Attributes:
        architecture: the name in vLLM's registry.
        model_type: of the text config, where it is known without looking.
        language: the architecture of a wrapper's language model, where it is known already.
        config: the config.json, which may tell the language model.
    """

    architecture: str
    model_type: str | None
    language: str | None = None
    config: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def key(self) -> str:
        """How a receipt names it: the architecture, and what the name alone does not tell."""
        own = "" if _is_known(self) else self.model_type or ""
        return ":".join((self.architecture, own, self.language or "")).rstrip(":")

    @classmethod
    def of_key(cls, key: str) -> Request:
        """The request that has this `key`."""
        architecture, model_type, language = [*key.split(":"), "", ""][:3]
        known = model_type or MODEL_TYPES.get(architecture)
        return cls(architecture, known or None, language or None)


def _is_known(wanted: Request) -> bool:
    """Whether the architecture alone tells the model_type: one edit serves all of DeepSeek's."""
    return wanted.architecture in MODEL_TYPES and wanted.model_type in ARCHITECTURES


def _from_config(path: Path) -> Request:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise UsageError("config.json is not a file", where=path)
        if status.st_size > MAX_CONFIG:
            what = f"config.json is {status.st_size} bytes; no model's is that large"
            raise UsageError(what, where=path)
        config = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UsageError("there is no config.json in this folder", where=path) from None
    except OSError as error:
        raise UsageError(f"config.json cannot be read: {error.strerror}", where=path) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"config.json is not JSON: {error}", where=path) from None
    if not isinstance(config, dict):
        raise UsageError("config.json is not a JSON object", where=path)
    from vllm_eagle3_patches import language, model_types  # not for a name alone

    text_type = (language.text_part(config) or {}).get("model_type")
    own_type = config.get("model_type")
    model_type = text_type if isinstance(text_type, str) else None
    if model_type is None and isinstance(own_type, str):
        model_type = model_types.of_text(own_type)
    names = config.get("architectures")
    if isinstance(names, list) and names and isinstance(names[0], str):
        return Request(names[0], model_type, config=config)
    architecture = ARCHITECTURES.get(own_type) if isinstance(own_type, str) else None
    if names and not isinstance(names, list):
        what = f"`architectures` in config.json is {json.dumps(names)[:80]}, not a list of names"
        raise UsageError(what, where=path)
    if architecture is None:
        raise UsageError(
            f"config.json has no `architectures`, and its model_type {own_type!r} does not tell "
            "which one it is",
            where=path,
            next=f"name the architecture: {NAMED}",
        )
    return Request(architecture, model_type, config=config)


def _hub_snapshot(name: str) -> Path | None:
    """The folder of a Hugging Face id in the local cache, or None.

    Layout: `<hub>/models--ORG--NAME/{refs/main, snapshots/<revision>/}` (huggingface_hub).
    """
    home = os.environ.get("HF_HOME") or os.path.expanduser("~/.cache/huggingface")  # noqa: PTH111
    hub = Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub")
    folder = hub / ("models--" + name.replace("/", "--"))
    try:
        revision = (folder / "refs" / "main").read_text().strip()
    except (OSError, UnicodeDecodeError):
        return None
    snapshot = folder / "snapshots" / revision
    return snapshot if snapshot.is_dir() else None


def request(model: str | None) -> Request:
    """What `--model` asks for: a folder with config.json, a cached Hugging Face id, or a name.

    Raises:
        UsageError: the folder or its config.json cannot be used, or the id is not in the cache.
    """
    if model is None:
        return Request(KIMI_K25, MODEL_TYPES[KIMI_K25])
    if not model:
        raise UsageError("--model is empty", next="leave it out for Kimi-K2.5, or name a model")
    path = Path(model)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except OSError as error:
        raise UsageError(f"no such model: {error.strerror}", where=model[:200]) from None
    if is_folder:
        return _from_config(path / "config.json")
    if model.isidentifier():
        return Request(model, MODEL_TYPES.get(model))
    if is_file or model.startswith((".", "/", "~")) or model.count("/") != 1:
        raise UsageError(
            "--model wants a folder with config.json, a cached Hugging Face id, or an architecture",
            where=model,
        )
    snapshot = _hub_snapshot(model)
    if snapshot is None:
        raise UsageError(
            f"{model} is neither a folder nor a model in the local Hugging Face cache",
            next="fetch its config.json into a folder and give that; or name the architecture: "
            f"{NAMED}",
        )
    return _from_config(snapshot / "config.json")


def find(sources: Sources, wanted: Request, version: str) -> Target:
    """The target in the installed vLLM; `version` is only for messages.

    Raises:
        UsageError: as `registered`.
        RefusedError: as `registered`, or its classes are not recognised.
    """
    entry = registered(sources, wanted, version)
    sites = [v for site in registry.classes(sources, entry) for v in variants(sources, site)]
    structures = tuple(of_class(sources, site) for site in sites)
    name = None
    if any(structure.by_config for structure in structures):
        name, structures = _with_language(sources, wanted, structures)
    return Target(wanted.architecture, wanted.model_type, structures, name)


def registered(sources: Sources, wanted: Request, version: str) -> registry.Entry:
    """The target's entry in the registry of the installed vLLM.

    Raises:
        UsageError: no vLLM release this tool knows has such an architecture, or its model_type is
            no name.
        RefusedError: this vLLM is too old for EAGLE-3 or for the model.
    """
    if wanted.model_type is not None and not MODEL_TYPE.fullmatch(wanted.model_type):
        raise UsageError(
            f"the model_type of {wanted.architecture} is {wanted.model_type!a}, which is no name",
            next="correct the model's config.json",
        )
    if not protocol.defined(sources, protocol.NAME):
        raise RefusedError(
            f"vLLM {version} has no SupportsEagle3 interface (0.10.1 brought it), so there is "
            "nothing to open",
            where=protocol.PATH,
            next="install vLLM 0.10.1 or newer (DeepSeek), 0.15.0 or newer (Kimi-K2.5)",
        )
    entries = registry.read(sources)
    entry = entries.get(wanted.architecture)
    if entry is None:
        if wanted.architecture == KIMI_K25:
            raise RefusedError(
                f"Kimi-K2.5 is not in vLLM {version}: 0.15.0 brought {KIMI_K25}",
                where=registry.PATH,
                next="for text-only Kimi-K2 and DeepSeek-V3: --model DeepseekV3ForCausalLM",
            )
        if wanted.architecture in MODEL_TYPES:
            raise RefusedError(
                f"{wanted.architecture} is not in vLLM {version}", where=registry.PATH
            )
        from difflib import get_close_matches

        close = get_close_matches(wanted.architecture, entries, n=3)
        raise UsageError(
            f"vLLM {version} knows no architecture {wanted.architecture!r}",
            where=registry.PATH,
            next=f"did you mean {' or '.join(close)}?" if close else None,
        )
    return entry


def _with_language(
    sources: Sources, wanted: Request, structures: tuple[Structure, ...]
) -> tuple[str | None, tuple[Structure, ...]]:
    """The language model that the request or its config.json names, and the structures with it;
    without either they stay as they are."""
    name = wanted.language
    if name is None and wanted.config is not None:
        from vllm_eagle3_patches import language

        found = {language.architecture(sources, s.top, wanted.config) for s in structures}
        name = found.pop() if len(found) == 1 else None
    elif name is None:
        return None, structures
    entry = registry.read(sources).get(name) if name else None
    if entry is None:
        unread = (
            f"the language model {name} that its config names is not in the registry"
            if name
            else "its config.json does not tell the language model; by its name alone "
            "the wrapper can be opened"
        )
        return name, tuple(replace(s, unread=unread) if s.by_config else s for s in structures)
    sites = [v for site in registry.classes(sources, entry) for v in variants(sources, site)]
    return name, tuple(
        new
        for s in structures
        for new in ([with_language(sources, s, v) for v in sites] if s.by_config else [s])
    )


def resolve(installation: Installation, model: str | None = None) -> Target:
    """`find` for the files as they lie in the installation."""
    return find(Sources(installation.root), request(model), installation.version)
