"""`--config FILE`: its settings come before the words of the command line, as vLLM puts them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from real import sources

from vllm_eagle3_patches.preflight import Declared, config_file
from vllm_eagle3_patches.preflight.command import Serve, command_line

SETTINGS = """\
model: org/model
tensor-parallel-size: 8
max_model_len: 32k
trust-remote-code: true
enable-prefix-caching: false
served-model-name: [a, b]
speculative-config:
  method: eagle3
  model: d
  num_speculative_tokens: 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "serve.yaml"
    path.write_text(SETTINGS)
    return path


def serve(version: str, *words: object) -> Serve:
    return command_line(["vllm", "serve", *map(str, words)], Declared(sources(version)))


def test_the_settings_of_the_file_are_read(file: Path) -> None:
    found = serve("0.32.0", "--config", file)
    assert (found.model, found.findings, found.tensor_parallel) == ("org/model", (), 8)
    assert found.speculative == {"method": "eagle3", "model": "d", "num_speculative_tokens": 3}
    assert found.integer("max-model-len") == 32000
    assert "no-enable-prefix-caching" in found.options


def test_what_is_typed_wins(file: Path) -> None:
    found = serve("0.32.0", "other/model", "--config", file, "-tp", "2")
    assert (found.model, found.tensor_parallel, found.findings) == ("other/model", 2, ())


def test_a_mapping_before_the_release_that_makes_json_of_it(file: Path) -> None:
    """To 0.15 the reader writes `str(value)`, which is no JSON."""
    (finding,) = serve("0.15.0", "--config", file).findings
    assert "--speculative-config is not a JSON object" in finding.detail
    file.write_text(f"model: m\nspeculative-config: '{json.dumps({'model': 'd'})}'\n")
    found = serve("0.15.0", "--config", file)
    assert (found.speculative, found.findings) == ({"model": "d"}, ())


@pytest.mark.parametrize(
    ("name", "text", "word"),
    [
        ("missing.yaml", None, "cannot be read"),
        ("serve.json", "{}", "wants a .yaml"),
        ("serve.yaml", "a: [", "is no YAML"),
        ("serve.yml", "", "holds no settings"),
        ("serve.yml", "- a", "holds no settings"),
        ("serve.yml", "frobnicate: 1", "no option"),
        ("serve.yml", "tensor-parallel-size: many", "a whole number"),
    ],
)
def test_a_file_that_stops_vllm(tmp_path: Path, name: str, text: str | None, word: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text)
    (finding,) = serve("0.18.0", "m", "--config", path).findings
    assert (finding.cls, finding.severity.value) == ("argument", "error")
    assert word in finding.detail


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "c.yaml")
    (finding,) = serve("0.18.0", "m", "--config", tmp_path / "c.yaml").findings
    assert "is not a file" in finding.detail


def test_no_file_and_two_files(file: Path) -> None:
    (finding,) = serve("0.18.0", "m", "--config").findings
    assert "names no file" in finding.detail
    found = serve("0.18.0", "m", "--config", file, "--config", file).findings
    assert "2 times" in found[0].detail


def test_a_file_glued_to_the_option_is_not_read_by_vllm(file: Path) -> None:
    found = serve("0.18.0", "m", f"--config={file}")
    assert [f.severity.value for f in found.findings] == ["warning"]
    assert found.tensor_parallel == 1


def test_without_yaml_the_rest_is_examined(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_file, "_yaml", lambda: None)
    found = serve("0.18.0", "m", "--config", file, "-tp", "4")
    assert [f.severity.value for f in found.findings] == ["warning"]
    assert found.tensor_parallel == 4
