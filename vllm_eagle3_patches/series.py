"""The pinned unified diffs: which series fits the installed bytes, and applying it exactly.

`patches/<version>/` holds `series`, one `<edit>.patch` for each edit, and `SHA256SUMS.before` and
`SHA256SUMS.after`.  The content decides which series fits; the folder's version is only its name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import Edit
from vllm_eagle3_patches.sources import Sources, sha256

BEFORE, AFTER = "SHA256SUMS.before", "SHA256SUMS.after"
CALL = "X-Codemod: "  # the line of a patch's header that says what it was generated with


def folder() -> Path:
    """Where the series lie: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    inside = package / "patches"
    return inside if inside.is_dir() else package.parent / "patches"


def safe(path: str) -> str:
    """The path itself, if it is a plain relative one below `vllm/`.

    Raises:
        RefusedError: it is absolute, has `..`, or leads elsewhere.
    """
    parts = path.split("/")
    if (
        len(parts) < 2
        or parts[0] != "vllm"
        or any(p in ("", ".", "..") for p in parts)
        or "\\" in path
    ):
        raise RefusedError(f"a pinned patch names the path {path!r}, outside the package")
    return path


def parse_sums(text: str, where: Path) -> dict[str, str]:
    """path -> hex sha256, from lines as `sha256sum` writes them."""
    sums = {}
    for line in text.splitlines():
        digest, gap, path = line.partition("  ")
        if len(digest) != 64 or not gap:
            raise RefusedError(f"not a line of sha256sum: {line!r}", where=where)
        sums[safe(path)] = digest
    return sums


@dataclass(frozen=True)
class Series:
    """One folder of pinned patches.

    Attributes:
        version: the folder's name, the vLLM release its bytes were taken from.
        path: the folder.
    """

    version: str
    path: Path

    def _text(self, name: str) -> str:
        file = self.path / name
        if file.is_symlink() or "/" in name or name in (".", ".."):
            raise RefusedError("a series holds plain files of its own folder only", where=file)
        try:
            return file.read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise RefusedError(f"cannot be read: {error}", where=file) from None

    @cached_property
    def before(self) -> dict[str, str]:
        return parse_sums(self._text(BEFORE), self.path / BEFORE)

    @cached_property
    def after(self) -> dict[str, str]:
        return parse_sums(self._text(AFTER), self.path / AFTER)

    @cached_property
    def patches(self) -> tuple[str, ...]:
        """The edits' names, in the order of the file `series`."""
        return tuple(line.removesuffix(".patch") for line in self._text("series").split())

    @cached_property
    def edits(self) -> frozenset[tuple[str, str, str]]:
        """(name, path, call) of each edit, read from the headers and `+++` lines."""
        found = set()
        for name in self.patches:
            lines = self._text(f"{name}.patch").splitlines()
            calls = [line[len(CALL) :] for line in lines if line.startswith(CALL)]
            for line in lines:
                if line.startswith("+++ b/"):
                    path = safe(line[len("+++ b/") :].partition("\t")[0])
                    found.add((name, path, calls[0] if calls else ""))
        return frozenset(found)

    def fits(self, sources: Sources, edits: Iterable[Edit]) -> bool:
        """Whether these edits are exactly what the series does to their files, byte for byte."""
        edits = list(edits)
        paths = {edit.path for edit in edits}
        if not all(self.before.get(path) == sha256(sources.data(path)) for path in paths):
            return False
        wanted = {(edit.name, edit.path, edit.call) for edit in edits}
        return wanted == {edit for edit in self.edits if edit[1] in paths}

    def apply(self, sources: Sources, edits: Iterable[Edit]) -> dict[str, bytes]:
        """The files' new bytes; every hunk at its own line, every context line equal.

        Raises:
            RefusedError: a hunk does not match, or the result does not have the pinned hash.
        """
        wanted = {edit.name for edit in edits}
        result: dict[str, bytes] = {}
        for name in self.patches:
            if name in wanted:
                where = self.path / f"{name}.patch"
                for path, data in patched(self._text(where.name), sources, result, where).items():
                    result[path] = data
        for path, data in result.items():
            if sha256(data) != self.after.get(path):
                raise RefusedError(
                    f"the pinned patches of {self.version} do not give the pinned hash", where=path
                )
        return result


def patched(diff: str, sources: Sources, over: dict[str, bytes], where: Path) -> dict[str, bytes]:
    """The files of one diff after it, read from `over` where they are in there."""
    from unidiff.errors import UnidiffParseError
    from unidiff.patch import PatchSet

    try:
        files = PatchSet(diff)
    except UnidiffParseError as error:
        raise RefusedError(f"not a unified diff: {error}", where=where) from None
    result = {}
    for file in files:
        path = safe(file.path)
        data = over[path] if path in over else sources.data(path)
        lines = [f"{line}\n" for line in data.decode().split("\n")]
        done: list[str] = []
        at = 0
        for hunk in file:
            start = hunk.source_start - 1 if hunk.source_length else hunk.source_start
            old = [line.value for line in hunk if not line.is_added]
            new = [line.value for line in hunk if not line.is_removed]
            if start < at or lines[start : start + len(old)] != old:
                raise RefusedError(
                    f"the hunk at line {hunk.source_start} of {path} does not match", where=where
                )
            done += [*lines[at:start], *new]
            at = start + len(old)
        result[path] = "".join([*done, *lines[at:]]).removesuffix("\n").encode()
    return result


def available() -> list[Series]:
    """Every pinned series, oldest version first."""
    root = folder()
    if not root.is_dir():
        return []
    found = [Series(p.name, p) for p in root.iterdir() if (p / "series").is_file()]
    return sorted(
        found, key=lambda s: [int(n) if n.isdigit() else -1 for n in s.version.split(".")]
    )


def find(sources: Sources, edits: list[Edit], hint: str) -> Series | None:
    """The series whose bytes these are; the one named `hint` is looked at first."""
    for series in sorted(available(), key=lambda s: s.version != hint):
        if series.fits(sources, edits):
            return series
    return None
