"""The annotated fields of vLLM's config classes, read as text: what a value of one may be."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.sources import Sources

CONFIG = "vllm/config"
ENGINE = "vllm/engine/arg_utils.py"
WRAPPERS = ("Annotated", "SkipValidation", "Optional", "Union", "Required", "ClassVar")
PLAIN = frozenset({"int", "float", "bool", "str", "dict", "list", "tuple", "set"})
BOUNDS = ("ge", "gt", "le", "lt")
# Classes that are made for every server, or whenever one of their settings is given; the bounds
# of others, such as LoRAConfig's, hold only where the feature is in use.
ALWAYS_MADE = (
    "ModelConfig",
    "ParallelConfig",
    "CacheConfig",
    "SchedulerConfig",
    "SpeculativeConfig",
)


@dataclass(frozen=True)
class Field:
    """One field.

    Attributes:
        name: as in the class.
        kinds: the types of the annotation: those of `PLAIN`, `None`, `Literal`, else `other`.
        choices: the values of its `Literal`, None where there is none or it is not all known.
        bounds: of pydantic's `Field(…)`: `ge`, `gt`, `le` and `lt`.
        validated: whether pydantic looks at the value (no `SkipValidation`).
    """

    name: str
    kinds: frozenset[str]
    choices: tuple[str, ...] | None
    bounds: tuple[tuple[str, float], ...] = ()
    validated: bool = True


def class_text(text: str, name: str) -> str:
    """The source of a class, from `class` to the next line that is not indented."""
    start = re.search(rf"^class {re.escape(name)}\b", text, re.MULTILINE)
    if start is None:
        return ""
    end = re.compile(r"^[^\s#)]", re.MULTILINE).search(text, start.end())
    return text[start.start() : end.start() if end else len(text)]


def field_of(sources: Sources, owner: str, name: str, frontend: str | None) -> Field | None:
    """The field `name` of the class `owner`, or None where it cannot be told."""
    for path in _files(sources, owner, frontend):
        text = snippets.text(sources, path)
        statement = _statement(class_text(text, owner), name)
        if statement is not None:
            found = _read(text, name, statement)
            return found if owner in ALWAYS_MADE else replace(found, bounds=())
    return None


def _files(sources: Sources, owner: str, frontend: str | None) -> Iterable[str]:
    folder = sources.root / CONFIG
    paths = [f"{CONFIG}/{path.name}" for path in sorted(folder.glob("*.py"))]
    for path in [*paths, ENGINE, *([frontend] if frontend else [])]:
        if f"class {owner}" in snippets.text(sources, path):
            yield path


def _statement(text: str, name: str) -> ast.AnnAssign | None:
    start = re.search(rf"^    {re.escape(name)}: ", text, re.MULTILINE)
    if start is None:
        return None
    lines = text[start.start() :].splitlines()[:40]
    for count in range(1, len(lines) + 1):
        try:
            node = ast.parse("\n".join(lines[:count]).strip()).body[0]
        except SyntaxError:
            continue
        return node if isinstance(node, ast.AnnAssign) else None
    return None


def _read(text: str, name: str, statement: ast.AnnAssign) -> Field:
    kinds: set[str] = set()
    choices: list[str] | None = []
    for part in _parts(text, statement.annotation, 0):
        if isinstance(part, str):
            kinds.add(part)
        elif part is None:
            kinds.add("Literal")
            choices = None
        else:
            kinds.add("Literal")
            choices = None if choices is None else [*choices, *part]
    keywords = statement.value.keywords if isinstance(statement.value, ast.Call) else []
    bounds = [
        (keyword.arg, float(keyword.value.value))
        for keyword in keywords
        if keyword.arg in BOUNDS
        and isinstance(keyword.value, ast.Constant)
        and isinstance(keyword.value.value, (int, float))
    ]
    found = tuple(choices) if choices and "str" not in kinds and "other" not in kinds else None
    validated = "SkipValidation" not in ast.unparse(statement.annotation)
    return Field(name, frozenset(kinds), found, tuple(bounds), validated)


def _parts(text: str, node: ast.expr, depth: int) -> list[str | list[str] | None]:
    """The types a union is made of: names, and lists of a Literal's values (None: not known)."""
    if isinstance(node, ast.BinOp):
        return [*_parts(text, node.left, depth), *_parts(text, node.right, depth)]
    if isinstance(node, ast.Constant):
        return ["None" if node.value is None else "other"]
    if isinstance(node, ast.Subscript):
        head = ast.unparse(node.value).rpartition(".")[2]
        inner = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        if head == "Literal":
            return [_values(text, inner, depth)]
        if head in WRAPPERS:
            inner = inner[:1] if head == "Annotated" else inner
            found = [p for part in inner for p in _parts(text, part, depth)]
            return [*found, "None"] if head == "Optional" else found
        return [head.lower() if head.lower() in PLAIN else "other"]
    name = ast.unparse(node)
    if name in PLAIN:
        return [name]
    if name == "torch.dtype":  # a value of the option is never one
        return ["dtype"]
    alias = _alias(text, name) if depth < 4 else None
    return ["other"] if alias is None else _parts(text, alias, depth + 1)


def _alias(text: str, name: str) -> ast.expr | None:
    start = re.search(rf"^{re.escape(name)}(?:: TypeAlias)? = ", text, re.MULTILINE)
    if start is None:
        return None
    lines = text[start.end() :].splitlines()[:80]
    for count in range(1, len(lines) + 1):
        try:
            return ast.parse("\n".join(lines[:count]).strip(), mode="eval").body
        except SyntaxError:
            continue
    return None


def _values(text: str, nodes: list[ast.expr], depth: int) -> list[str] | None:
    found: list[str] = []
    for node in nodes:
        if isinstance(node, ast.Constant):
            found.append(str(node.value))
            continue
        alias = _alias(text, ast.unparse(node)) if depth < 4 else None
        inner = _parts(text, alias, depth + 1) if alias is not None else [None]
        for part in inner:
            if not isinstance(part, list):
                return None
            found += part
    return found
