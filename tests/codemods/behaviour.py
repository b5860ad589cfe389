"""What must hold of every codemod on every source it accepts or refuses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from real import edits, outside, text, transform

from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.gates.base import Edit


def assert_sound(before: str, after: str, edit: Edit) -> None:
    """A result that may be written: compiles, is settled, and stays inside the edit's classes."""
    compile(after, edit.path, "exec", dont_inherit=True)
    assert transform(after, edit) == after
    assert outside(after, edit.scopes) == outside(before, edit.scopes)


def assert_changes_nothing_twice(version: str, name: str) -> None:
    edit = edits(version)[name]
    after = transform(text(version, edit.path), edit)
    assert transform(after, edit) == after


def assert_holds(version: str, name: str) -> None:
    """The change is made and sound, whatever the ends of lines and of the file are."""
    edit = edits(version)[name]
    before = text(version, edit.path)
    after = transform(before, edit)
    assert after != before
    assert_sound(before, after, edit)

    # Windows line ends, and no end of the last line.
    other = transform(before.replace("\n", "\r\n").rstrip("\r\n"), edit)
    assert other == after.replace("\n", "\r\n").rstrip("\r\n")


@contextmanager
def refused(reason: str) -> Iterator[None]:
    """The block must raise RefusedError with this in its sentence."""
    with pytest.raises(RefusedError) as raised:
        yield
    assert re.search(reason, raised.value.what)


def assert_refused(source: str, edit: Edit, reason: str) -> None:
    """The source is valid Python, and refused for this reason, with the place named."""
    ast.parse(source)
    with pytest.raises(RefusedError, match=reason) as raised:
        transform(source, edit)
    assert edit.name in raised.value.what
    assert raised.value.where is not None and edit.path in raised.value.where
