"""Every generating architecture of a release: planned or refused with a reason, nothing mangled.

The edits of all targets of a release are made together, each file parsed once: an edit may touch
its own class and nothing else, so what holds of each edit on the way holds of each target alone.
Targets are planned one by one, as `apply` plans them, only once for each kind of edit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

import libcst as cst
import pytest
from wheels import tree

from vllm_eagle3_patches import codemods, plan, proofs, survey
from vllm_eagle3_patches.codemods.syntax import body_of, code
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import Edit, Finding, State
from vllm_eagle3_patches.sources import Sources, decode
from vllm_eagle3_patches.target import MODEL_TYPES, Request, Target, find

# Release -> how many generating architectures it has, and how many of them at least are native or
# can be opened.
GOALS = {
    "0.11.2": (180, 153),
    "0.17.1": (223, 202),
    "0.24.0": (254, 231),
    "0.32.0": (262, 243),
}
# What an edit of each codemod may change or add inside its class.
METHODS = {
    "aux_capture": {
        "forward", "set_aux_hidden_state_layers", "get_eagle3_aux_hidden_state_layers",
        "aux_hidden_state_layers",
    },
    "interface": {
        "set_aux_hidden_state_layers", "get_eagle3_aux_hidden_state_layers",
        "get_eagle3_default_aux_hidden_state_layers",
    },
    "aliases": {"model", "embed_tokens", "layers"},
    "head": {"__init__"},
    "image_token": {"load_model"},
    "weight_sharing": {"load_model"},
    "model_type": {"_verify_args", "__post_init__"},
}  # fmt: skip

each_release = pytest.mark.parametrize("version", GOALS)


@dataclass
class Release:
    """What the tool says of every generating architecture of a release."""

    sources: Sources
    targets: dict[str, Target] = field(default_factory=dict)
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    edits: dict[str, list[Edit]] = field(default_factory=dict)
    refused_edits: dict[Edit, str] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)
    after: dict[str, str] = field(default_factory=dict)
    strays: list[str] = field(default_factory=list)

    def states(self, name: str) -> set[State]:
        return {finding.state for finding in self.findings[name]}

    @property
    def native(self) -> list[str]:
        return [n for n in self.targets if all(s.passes for s in self.states(n))]

    @property
    def opened(self) -> list[str]:
        """The targets that have closed gates only, each of whose edits can be made."""
        return [
            n
            for n in self.targets
            if State.CLOSED in self.states(n) and State.REFUSED not in self.states(n)
            and not any(edit in self.refused_edits for edit in self.edits[n])
        ]  # fmt: skip

    def edits_at(self, name: str, path: str) -> list[Edit]:
        return [edit for edit in self.edits[name] if edit.path == path]

    def edits_of(self, path: str) -> list[Edit]:
        names = self.opened
        found = dict.fromkeys(e for n in names for e in self.edits[n] if e.path == path)
        return list(found)


@lru_cache(maxsize=1)  # a release's trees are large
def release(version: str) -> Release:
    sources = Sources(tree(version))
    found = Release(sources)
    for name in (entry.architecture for entry in survey.entries(sources)):
        # A model type that no release lists: its gate is closed wherever there is a list.
        wanted = Request(name, MODEL_TYPES.get(name, survey.UNKNOWN))
        target = found.targets[name] = find(sources, wanted, version)
        found.findings[name] = plan.findings(sources, target)
        found.edits[name] = []
        if State.REFUSED not in found.states(name):
            found.edits[name] = plan.edits_for(sources, target)
    every = dict.fromkeys(edit for edits in found.edits.values() for edit in edits)
    for path in dict.fromkeys(edit.path for edit in every):
        found.before[path] = decode(sources.data(path), path)
        module = codemods.parse(found.before[path], path)
        for edit in (e for e in every if e.path == path):
            try:
                changed = codemods.transform(module, edit)
            except RefusedError as error:
                found.refused_edits[edit] = error.what
                continue
            found.strays += strays(module, changed, edit)
            module = changed
        found.after[path] = module.code
    return found


def strays(before: cst.Module, after: cst.Module, edit: Edit) -> list[str]:
    """What the edit changed that is not its own, by name; trees share what is the same."""
    where = f"{edit.name} of {edit.path}"
    found = []
    for statement in differing(before.body, after.body):
        if isinstance(statement, cst.ClassDef) and statement.name.value in edit.scopes:
            [old] = [
                s for s in before.body
                if isinstance(s, cst.ClassDef) and s.name.value == statement.name.value
            ]  # fmt: skip
            names = {
                name_of(s)
                for pair in ((body_of(old), body_of(statement)), (body_of(statement), body_of(old)))
                for s in differing(*pair)
            }
            found += [f"{where}: {n}" for n in names - METHODS[edit.codemod]]
        elif not is_import(statement) and name_of(statement) not in edit.scopes:
            found.append(f"{where}: {code(statement)[:80]}")
    return found


def differing(before: object, after: object) -> Iterator[cst.CSTNode]:
    """The statements of `after` that do not stand in `before`, comments above them apart."""
    assert isinstance(before, (list, tuple)) and isinstance(after, (list, tuple))
    ids = [{id(s) for s in side} for side in (before, after)]
    gone = {code(s).strip() for s in before if id(s) not in ids[1]}
    yield from (s for s in after if id(s) not in ids[0] and code(s).strip() not in gone)


def is_import(statement: cst.CSTNode) -> bool:
    return isinstance(statement, cst.SimpleStatementLine) and isinstance(
        statement.body[0], (cst.Import, cst.ImportFrom)
    )


def name_of(statement: cst.CSTNode) -> str:
    """The name a statement defines, or its code."""
    if isinstance(statement, cst.FunctionDef):
        return statement.name.value
    if isinstance(statement, cst.ClassDef):
        return statement.name.value
    node = ast.parse(code(statement).strip()).body[0]
    return node.target.id if isinstance(node, ast.AnnAssign) else ast.unparse(node)  # type: ignore[union-attr]


@each_release
def test_every_generating_architecture(version: str) -> None:
    found = release(version)
    total, least = GOALS[version]
    assert len(found.targets) == total
    for name in found.targets:
        for finding in found.findings[name]:
            assert finding.detail, (name, finding)
    print(version, len(found.native), len(found.opened), len(found.targets))
    assert len(found.native) + len(found.opened) >= least

    for name in found.native:
        assert found.edits[name] == [], name

    assert found.strays == []
    after = {path: text.encode() for path, text in found.after.items()}
    for path, text in found.after.items():
        edits = found.edits_of(path)
        if edits:
            proofs.compiles(path, after[path])
            proofs.codemods_settled(path, found.before[path].encode(), text.encode(), edits)

    patched = found.sources.with_overlay(after)
    for name in found.opened:
        target = find(patched, Request(name, found.targets[name].model_type), version)
        states = {f.gate: (f.state, f.detail) for f in plan.findings(patched, target)}
        assert all(state.passes for state, _ in states.values()), (name, states)

    for name in one_of_each_kind(found):
        made = plan.make(found.sources, [found.targets[name]], version)
        assert set(made.edits) == set(found.edits[name]), name
        for path, data in made.after.items():
            own = codemods.apply(found.before[path], found.edits_at(name, path), path)
            assert data.decode() == own, (name, path)


def one_of_each_kind(found: Release) -> list[str]:
    """The first of the targets that need each combination of edits, as far as names do not
    matter; so each way of planning is gone once."""
    first: dict[frozenset[object], str] = {}
    for name in found.opened:
        kinds = {
            (e.codemod, *(e.arguments.get(k) for k in ("stream", "era", "body", "default")))
            for e in found.edits[name]
        }
        first.setdefault(frozenset(kinds), name)
    return list(first.values())
