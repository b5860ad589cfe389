"""The real sources of every vLLM release under test, with their targets and edits, read once."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Iterable
from functools import cache

from wheels import tree

from vllm_eagle3_patches import codemods, plan, registry
from vllm_eagle3_patches import target as targets
from vllm_eagle3_patches.gates.base import Edit, Finding
from vllm_eagle3_patches.sources import Sources
from vllm_eagle3_patches.target import Target

KIMI = "KimiK25ForConditionalGeneration"
DEEPSEEK = "DeepseekV3ForCausalLM"
DEEPSEEK_V32 = "DeepseekV32ForCausalLM"

# Releases with closed gates, the ones of them that have Kimi-K2.5 or a bare decoder in it, and
# releases where EAGLE-3 is native for these models.
CLOSED = ["0.10.1", "0.10.1.1", "0.10.2", "0.11.0", "0.11.1", "0.11.2", "0.12.0", "0.13.0"]
CLOSED += ["0.14.0", "0.14.1", "0.15.0", "0.15.1", "0.16.0", "0.17.0", "0.17.1"]
WITH_KIMI = CLOSED[CLOSED.index("0.15.0") :]
BARE_DECODER = ["0.15.0", "0.15.1"]
WITH_V32 = CLOSED[CLOSED.index("0.11.0") :]
NATIVE = ["0.18.0", "0.19.1", "0.20.2", "0.21.0", "0.22.1", "0.24.0", "0.27.1", "0.30.0", "0.32.0"]

CONFIG = "vllm/config/speculative.py"
DEEPSEEK_FILE = "vllm/model_executor/models/deepseek_v2.py"
KIMI_FILE = "vllm/model_executor/models/kimi_k25.py"
LOADER = "vllm/v1/spec_decode/eagle.py"


@cache
def sources(version: str) -> Sources:
    """The installed files of a release; read only."""
    return Sources(tree(version))


def text(version: str, path: str) -> str:
    return sources(version).data(path).decode()


def with_texts(version: str, texts: dict[str, str]) -> Sources:
    """The files of a release, some of them replaced."""
    return sources(version).with_overlay({path: new.encode() for path, new in texts.items()})


def find(where: Sources, architecture: str) -> Target:
    return targets.find(where, targets.request(architecture), "")


@cache
def target(version: str, architecture: str) -> Target:
    return find(sources(version), architecture)


def architecture(version: str) -> str:
    """The target that meets the most gates in this release."""
    return KIMI if KIMI in registry.read(sources(version)) else DEEPSEEK


@cache
def edits(version: str) -> dict[str, Edit]:
    """Every edit that this release needs, by name."""
    needed = plan.edits_for(sources(version), target(version, architecture(version)))
    return {edit.name: edit for edit in needed}


@cache
def transform(source: str, edit: Edit) -> str:
    return codemods.apply(source, [edit], edit.path)


def patched(version: str, *names: str) -> dict[str, str]:
    """path -> text after the edits of these names, or all."""
    texts: dict[str, str] = {}
    for name, edit in edits(version).items():
        if name in names or not names:
            before = texts.get(edit.path) or text(version, edit.path)
            texts[edit.path] = transform(before, edit)
    return texts


def finding(where: Sources, architecture: str, gate: str) -> Finding:
    """What one gate says about a target in these sources."""
    found = plan.findings(where, find(where, architecture))
    return next(f for f in found if f.gate == gate)


def swap(source: str, old: str, new: str) -> str:
    """`source` with its one `old` replaced."""
    assert source.count(old) == 1, f"{source.count(old)} times {old!r}"
    return source.replace(old, new)


@cache
def syntax(source: str) -> ast.Module:
    """Read only: it is shared."""
    return ast.parse(source)


def class_in(source: str, name: str) -> ast.ClassDef:
    """Read only: it is shared."""
    (found,) = [s for s in syntax(source).body if isinstance(s, ast.ClassDef) and s.name == name]
    return found


def method_in(source: str, cls: str, name: str) -> ast.FunctionDef:
    (found,) = [
        s for s in class_in(source, cls).body if isinstance(s, ast.FunctionDef) and s.name == name
    ]
    return found


@cache
def cut(source: str, *names: str) -> str:
    """`source` without its top-level classes and functions but these."""
    lines = source.splitlines(keepends=True)
    for statement in reversed(syntax(source).body):
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)) and statement.name not in names:
            first = min([statement.lineno, *(d.lineno for d in statement.decorator_list)])
            del lines[first - 1 : statement.end_lineno]
    return "".join(lines)


def changes(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines that went and the lines that came, without their indent and blank ones."""
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0))[2:]
    return _marked(lines, "-"), _marked(lines, "+")


def _marked(lines: Iterable[str], mark: str) -> list[str]:
    return [line[1:].strip() for line in lines if line.startswith(mark) and line[1:].strip()]


def outside(source: str, scopes: tuple[str, ...]) -> list[str]:
    """The syntax of everything at the top level but these classes and the imports."""
    return [
        ast.dump(statement)
        for statement in syntax(source).body
        if getattr(statement, "name", None) not in scopes
        and not isinstance(statement, (ast.Import, ast.ImportFrom))
    ]
