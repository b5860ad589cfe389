from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from packaging.version import Version
from wheels import tree

import vllm_eagle3_patches.explain
from explain.examples import error, filled, rows
from explain.logs import FORMS, worker_failure
from explain.quoted import sources, stands_in, wanted
from explain.reading import read
from vllm_eagle3_patches.classes import CLASSES
from vllm_eagle3_patches.explain.signatures import (
    CONSEQUENCE,
    ROOT,
    WRAPPER,
    Fault,
    Frame,
    Signature,
    edits,
    edits_on,
    lookup,
    table,
)

PATCHES = Path(__file__).parents[2] / "patches"
FILE = Path(vllm_eagle3_patches.explain.__file__).with_name("signatures.json")
# The first, the last, and those where texts came or went.
PINNED = ("0.10.1", "0.11.2", "0.15.1", "0.17.1", "0.20.2", "0.24.0", "0.32.0")


def test_each_row_is_complete() -> None:
    assert len({row.id for row in table()}) == len(table())
    for row in table():
        assert row.text or row.exception or row.code, row.id
        assert row.source, row.id
        assert row.strength in (ROOT, CONSEQUENCE, WRAPPER), row.id
        if row.strength == WRAPPER:
            assert row.kind is None, row.id
        else:
            assert row.kind in CLASSES, row.id
            assert row.what and (row.fix or row.apply), row.id
        for kind in filter(None, (row.if_drafter, row.if_target)):
            assert kind in CLASSES, row.id


def test_each_placeholder_is_used_and_known() -> None:
    names = re.compile(r"\{(\w+)\}")
    for row in table():
        known = set(names.findall(row.text + row.tail))
        assert set(names.findall(row.what + row.fix)) <= known, row.id
        assert set(row.where) <= known, row.id
        for name in filter(None, (row.cause, row.subject)):
            assert name in known or name == "any", row.id


def test_every_class_of_the_design_that_shows_in_an_error_has_a_row() -> None:
    silent = {"ignored-setting", "unknown"}  # a setting that is ignored raises nothing
    assert {row.kind for row in table()} - {None} == set(CLASSES) - silent


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.id)
def test_the_row_is_found_by_its_own_text(row: Signature) -> None:
    found = read(worker_failure(FORMS["0.11"], error(row)).text())
    assert found.cause is not None
    assert found.cause.kind in (row.kind, row.if_drafter), found.cause
    assert "?" not in (found.what or ""), found.what
    assert found.gate == (row.kind if row.apply else found.gate)


@pytest.mark.parametrize("row", [row for row in rows() if row.text], ids=lambda row: row.id)
def test_a_text_is_found_by_the_row_it_belongs_to(row: Signature) -> None:
    made = error(row)
    frames = [Frame(f.path, f.line, f.function, f.code) for f in made.frames]
    found = lookup(Fault(made.exception, made.message, frames))
    assert found is not None
    assert found[0].id == row.id or found[0].kind == row.kind


@pytest.mark.parametrize("version", PINNED)
def test_the_texts_stand_in_the_sources_they_are_said_to_come_from(version: str) -> None:
    origin, now = tree(version), Version(version)
    wrong = []
    for record in json.loads(FILE.read_text())["signatures"]:
        names = [name for name in record["source"] if name.startswith("vllm/")]
        text = wanted(record)
        if not names or text is None:
            continue
        since, until = record.get("since"), record.get("until")
        expected = (since is None or now >= Version(since)) and (
            until is None or now <= Version(until)
        )
        there = any(stands_in(text, source) for source in sources(origin, names))
        if there != expected:
            wrong.append(f"{record['id']}: {'there' if there else 'not there'}")
    assert wrong == []


def test_every_edit_of_the_series_is_known() -> None:
    series = {
        line.removesuffix(".patch")
        for file in PATCHES.glob("*/series")
        for line in file.read_text().split()
    }
    assert {edit.edit for edit in edits()} == series
    for edit in edits():
        patched = [f.read_text() for f in PATCHES.glob(f"*/{edit.edit}.patch")]
        assert any(f"+++ b/{edit.path}" in text for text in patched), edit


def test_edits_on_a_traceback() -> None:
    frames = [
        Frame("vllm/v1/worker/gpu_model_runner.py", 1, "load_model"),
        Frame("vllm/v1/spec_decode/eagle.py", 2, "load_model"),
    ]
    assert edits_on(frames) == ("image-token", "weight-sharing")
    assert edits_on(frames[:1]) == ()


def test_values_come_out_of_the_text() -> None:
    [row] = [row for row in table() if row.id == "fc-shape"]
    values = row.match(Fault("RuntimeError", filled(row)), "")
    assert values is not None
    assert (values["got"], values["wanted"]) == ("4096", "12288")
