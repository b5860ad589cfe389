"""docs/supported: the committed pages are those of the committed data, and the data is true."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from real import sources

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import make_supported  # noqa: E402
import supported_map  # noqa: E402

from vllm_eagle3_patches import survey  # noqa: E402

QUICK = "0.32.0"


def test_the_pages_are_what_the_generator_makes() -> None:
    for path, text in make_supported.documents().items():
        assert path.read_text() == text, f"{path.name} is not current: make docs"


def test_the_data_is_what_the_sources_say() -> None:
    """Each tenth architecture of one version; `tools/make_supported.py --survey --check` does
    all of them."""
    data = json.loads((make_supported.FOLDER / f"{QUICK}.json").read_text())
    where = sources(QUICK)
    names = [entry.architecture for entry in survey.entries(where)]
    assert list(data) == names
    for row in survey.rows(where, QUICK, only=names[::10]):
        assert json.loads(json.dumps(make_supported.facts(row))) == data[row.architecture]


@pytest.mark.parametrize("version", make_supported.VERSIONS)
def test_nothing_made_the_reader_fail(version: str) -> None:
    text = (make_supported.FOLDER / f"{version}.json").read_text()
    assert "this tool failed" not in text


def test_the_picture_has_a_cell_for_each_architecture_of_each_release() -> None:
    picture = ElementTree.fromstring((ROOT / "docs" / "supported.svg").read_text())
    titles = [e.text for e in picture.iter("{http://www.w3.org/2000/svg}title")]
    for version in make_supported.VERSIONS:
        data = json.loads((make_supported.FOLDER / f"{version}.json").read_text())
        for name, facts in data.items():
            word = supported_map.WORDS.get(facts["state"], facts["state"])
            assert f"{name}, vLLM {version}: {word}" in titles
