"""Where the V1 runner's drafter loader is: the proposer class, shared by three gates."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.sources import ClassSite, Sources

# From 0.20.0 the loader moved to llm_base_proposer.py; class EagleProposer to 0.14.1,
# SpecDecodeBaseProposer from 0.15.0.
PATHS = ("vllm/v1/spec_decode/llm_base_proposer.py", "vllm/v1/spec_decode/eagle.py")


@dataclass(frozen=True)
class Loader:
    """`load_model` of the proposer."""

    site: ClassSite
    method: ast.FunctionDef


def find(sources: Sources) -> Loader:
    """The class whose `load_model(self, target_model)` loads the drafter.

    Raises:
        RefusedError: there is no such method.
    """
    for path in PATHS:
        if not sources.exists(path):
            continue
        for statement in sources.tree(path).body:
            if isinstance(statement, ast.ClassDef):
                site = ClassSite(path, statement)
                method = site.method("load_model")
                if method is not None and [a.arg for a in method.args.args][1:2] == [
                    "target_model"
                ]:
                    return Loader(site, method)
    raise RefusedError("no proposer with load_model(target_model) found", where=PATHS[1])
