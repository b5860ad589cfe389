"""The installed package as text: bytes, syntax trees and classes, each read once.

Nothing of vLLM is imported.  Every file that was read is remembered, so that the fingerprint
of a target covers exactly the files its verdict depends on.
"""

from __future__ import annotations

import ast
import hashlib
import re
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from vllm_eagle3_patches.errors import IntegrityError, RefusedError

BOM = b"\xef\xbb\xbf"


def sha256(data: bytes) -> str:
    """Hex sha256 of these bytes."""
    return hashlib.sha256(data).hexdigest()


def decode(data: bytes, path: str) -> str:
    """UTF-8 source text without its byte-order mark; line ends stay as they are.

    Raises:
        RefusedError: the bytes are not UTF-8.
    """
    try:
        return data.removeprefix(BOM).decode()
    except UnicodeDecodeError as error:
        raise RefusedError(f"not UTF-8 text: {error}", where=path) from None


def encode(text: str, like: bytes) -> bytes:
    """The bytes of `text`, with a byte-order mark if `like` has one."""
    return (BOM if like.startswith(BOM) else b"") + text.encode()


_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def lines(text: str) -> list[str]:
    """The lines as Python's own line numbers count them (form feeds end none), ends included."""
    return _LINE.findall(text)


def parse(data: bytes, path: str, root: Path, *, keep: bool = True) -> ast.Module:
    """The syntax tree of the file `path` below `root`, which has these bytes.

    With `keep`, equal bytes get one tree, which nobody may change.

    Raises:
        RefusedError: it is not valid Python.
    """
    text = decode(data, path)
    try:
        return shared_tree(data) if keep else ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise RefusedError(
            f"not valid Python: {getattr(error, 'msg', error) or 'nested too deeply'}",
            where=f"{root / path}:{line}" if line else root / path,
            next="reinstall this vLLM version, then run the command again",
        ) from None


@lru_cache(maxsize=512)  # a listing of every architecture reads some 400 files, a target 20
def shared_tree(data: bytes) -> ast.Module:
    """The syntax tree of a file with these bytes, which nobody may change."""
    return ast.parse(decode(data, ""))


class Sources:
    """A read-only view of `vllm/...` under one root, with some files replaced by other bytes."""

    def __init__(self, root: Path, overlay: Mapping[str, bytes] | None = None) -> None:
        self.root = root
        self.overlay = dict(overlay or {})
        self._data: dict[str, bytes | None] = {}  # what was asked for
        self._trees: dict[str, ast.Module] = {}
        self.memo: dict[Any, Any] = {}  # for what others conclude from this view
        self._disk: dict[str, bytes | None] = {}  # what was read, shared with views made of this

    def with_overlay(self, overlay: Mapping[str, bytes]) -> Sources:
        """The view with these bytes over it; nothing was asked for yet."""
        view = Sources(self.root, {**self.overlay, **overlay})
        view._disk = self._disk
        return view

    def _read(self, path: str) -> bytes | None:
        if path not in self._data:
            self._data[path] = self.overlay[path] if path in self.overlay else self._load(path)
        return self._data[path]

    def _load(self, path: str) -> bytes | None:
        if path not in self._disk:
            place = self.root / path
            try:
                if not stat.S_ISREG(place.stat().st_mode):  # a pipe would be waited for
                    raise IntegrityError("this is not a regular file", where=place)
                self._disk[path] = place.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                self._disk[path] = None
            except OSError as error:
                raise IntegrityError(f"cannot be read: {error.strerror}", where=place) from None
        return self._disk[path]

    def exists(self, path: str) -> bool:
        return self._read(path) is not None

    def data(self, path: str) -> bytes:
        """The file's bytes.

        Raises:
            IntegrityError: it is missing or cannot be read.
        """
        data = self._read(path)
        if data is None:
            raise IntegrityError(
                "the file is missing from the installed vLLM",
                where=self.root / path,
                next="reinstall this vLLM version, then run the command again",
            )
        return data

    def tree(self, path: str) -> ast.Module:
        """The file's syntax tree; raises RefusedError as `parse` does."""
        if path not in self._trees:
            self._trees[path] = parse(self.data(path), path, self.root)
        return self._trees[path]

    def asked_for(self) -> list[str]:
        """Every path that was read, or looked for and not there."""
        return sorted(self._data)

    def fingerprint(self) -> str:
        """One sha256 over the name and bytes of every file read so far, missing ones included."""
        total = hashlib.sha256()
        for path in sorted(self._data):
            data = self._data[path]
            total.update(f"{sha256(data) if data is not None else '-'}  {path}\n".encode())
        return total.hexdigest()


class ClassSite:
    """A class definition and the file it stands in."""

    def __init__(self, path: str, node: ast.ClassDef) -> None:
        self.path = path
        self.node = node

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def line(self) -> int:
        return self.node.lineno

    def method(self, name: str) -> ast.FunctionDef | None:
        for statement in self.node.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == name:
                return statement
        return None

    def attribute(self, name: str) -> ast.expr | None:
        """The value given to a class attribute in the class body."""
        for statement in self.node.body:
            if isinstance(statement, ast.Assign):
                names = [t.id for t in statement.targets if isinstance(t, ast.Name)]
                if name in names:
                    return statement.value
            elif (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and statement.target.id == name
            ):
                return statement.value
        return None


def module_path(sources: Sources, dotted: str) -> str | None:
    """`vllm.a.b` -> `vllm/a/b.py` or `vllm/a/b/__init__.py`, whichever is installed."""
    if not dotted.startswith("vllm"):
        return None
    stem = dotted.replace(".", "/")
    for path in (f"{stem}.py", f"{stem}/__init__.py"):
        if sources.exists(path):
            return path
    return None


def _absolute(path: str, node: ast.ImportFrom) -> str:
    """The dotted module an import names, relative imports resolved against `path`."""
    if not node.level:
        return node.module or ""
    package = path.split("/")[: -node.level]
    return ".".join([*package, *([node.module] if node.module else [])])


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under a top-level `if` or `try` included."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If):
            yield from statements(statement.body)
            yield from statements(statement.orelse)
        elif isinstance(statement, ast.Try):
            yield from statements(statement.body)


@lru_cache(maxsize=512)
def _named(tree: ast.Module) -> dict[str, list[ast.ClassDef | tuple[ast.ImportFrom, str]]]:
    """Name -> the classes and imports of the module that give it a meaning, in order; of an
    import also what the name is called where it comes from."""
    found: dict[str, list[ast.ClassDef | tuple[ast.ImportFrom, str]]] = {}
    for statement in statements(tree.body):
        if isinstance(statement, ast.ClassDef):
            found.setdefault(statement.name, []).append(statement)
        elif isinstance(statement, ast.ImportFrom):
            for alias in statement.names:
                found.setdefault(alias.asname or alias.name, []).append((statement, alias.name))
    return found


@lru_cache(maxsize=16384)
def _may_name_a_class(data: bytes, name: str) -> bool:
    """Whether a module may define or import a class of this name, by its text alone, which is
    far cheaper than its tree: a name with a parenthesis behind it at every mention is neither."""
    word = name.encode()
    return re.search(rb"\bclass\s+%s\b|\b%s\b(?![ \t]*\()" % (word, word), data) is not None


def find_classes(sources: Sources, path: str, name: str) -> list[ClassSite]:
    """Every class `name` may stand for in module `path`; more than one where a platform decides.

    Follows imports within vLLM, e.g. `vllm/models/deepseek_v32/__init__.py` (0.28.0 on), which
    imports the class from an `nvidia`, an `amd` or the generic module.
    """
    found: dict[tuple[str, str], ClassSite] = {}
    seen: set[tuple[str, str]] = set()

    def look(path: str, name: str) -> None:
        if (path, name) in seen:
            return
        seen.add((path, name))
        if not _may_name_a_class(sources.data(path), name):
            return
        for meaning in _named(sources.tree(path)).get(name, []):
            if isinstance(meaning, ast.ClassDef):
                found[path, name] = ClassSite(path, meaning)
            else:
                statement, original = meaning
                origin = module_path(sources, _absolute(path, statement))
                if origin is not None:
                    look(origin, original)

    look(path, name)
    return list(found.values())


def bases(sources: Sources, site: ClassSite) -> list[ClassSite]:
    """The class and all its bases that are defined in vLLM, nearest first, each once."""
    order: list[ClassSite] = []

    def visit(site: ClassSite) -> None:
        if any(site.path == s.path and site.name == s.name for s in order):
            return
        order.append(site)
        for base in site.node.bases:
            if isinstance(base, ast.Subscript):
                base = base.value
            if isinstance(base, ast.Name):
                for parent in find_classes(sources, site.path, base.id):
                    visit(parent)

    visit(site)
    return order


def owner_of(sources: Sources, site: ClassSite, method: str) -> ClassSite | None:
    """The class in the MRO that defines the method."""
    return next((owner for owner in bases(sources, site) if owner.method(method)), None)


@lru_cache(maxsize=4096)
def walk(node: ast.AST) -> tuple[ast.AST, ...]:
    """`ast.walk` of a part of a tree that nobody changes; many gates, and all architectures that
    share it, walk over it again."""
    return tuple(ast.walk(node))


def assigned(node: ast.AST, name: str) -> list[ast.expr]:
    """The values of the plain assignments to this name anywhere below the node."""
    return [
        n.value
        for n in walk(node)
        if isinstance(n, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == name for t in n.targets)
    ]


def default_of(function: ast.FunctionDef, name: str) -> ast.expr | None:
    """The default of the parameter of this name, None where it has none."""
    arguments = function.args
    tail = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    pairs = [
        *zip(tail, arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return next((default for argument, default in pairs if argument.arg == name), None)
