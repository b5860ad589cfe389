"""Options as the installed vLLM's own source declares them."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real import sources

from vllm_eagle3_patches.preflight import Declared
from vllm_eagle3_patches.preflight.command import Serve, arguments, command_line
from vllm_eagle3_patches.preflight.declared import Takes
from vllm_eagle3_patches.sources import Sources

ALL = ("0.10.2", "0.11.2", "0.15.0", "0.17.1", "0.18.0", "0.24.0", "0.32.0")
DECLARED = {version: Declared(sources(version)) for version in ALL}


def serve(version: str, options: str) -> Serve:
    return command_line(["vllm", "serve", "m", *shlex.split(options)], DECLARED[version])


def refused(version: str, options: str) -> list[str]:
    found = serve(version, options).findings
    assert all(f.cls == "argument" and f.severity.value == "error" for f in found)
    return [f.detail for f in found]


@pytest.mark.parametrize("version", ALL)
def test_the_options_of_a_release_are_read_from_its_source(version: str) -> None:
    declared = DECLARED[version]
    assert declared.readable and not declared.has_plugins
    for name, takes in {
        "--tensor-parallel-size": Takes.ONE,
        "-tp": Takes.ONE,
        "--port": Takes.ONE,
        "--speculative-config": Takes.ONE,
        "--trust-remote-code": Takes.NOTHING,
        "--no-enable-prefix-caching": Takes.NOTHING,
        "--enable-log-requests": Takes.NOTHING,
        "--headless": Takes.NOTHING,
        "--served-model-name": Takes.SOME,
        "--help": Takes.NOTHING,
    }.items():
        option = declared.option(name)
        assert option is not None and option.takes is takes, name
    assert declared.option("--no-no-trust-remote-code") is None
    assert declared.option("--no-port") is declared.option("--frobnicate") is None
    unknown = [n for n in declared.names if declared.option(n).takes is Takes.UNKNOWN]  # type: ignore[union-attr]
    assert len(unknown) < 20 < len(declared.names)


COMMON = (
    "-tp 8 -pp=2 --dtype half --max-model-len 32k --kv-cache-dtype fp8 --seed -1 -O3 --port 80 "
    "--no-enable-prefix-caching --trust-remote-code --served-model-name a b c --enforce-eager "
    "--gpu-memory-utilization 0.9 --max_num_seqs 16 --compilation-config.level 3 -q fp8 "
    "--tensor-parallel 4 --api-key k1 k2 --chat-template ./x.jinja --host 0.0.0.0 "
    '--speculative-config \'{"method": "eagle3", "model": "d", "num_speculative_tokens": 3}\''
)


@pytest.mark.parametrize("version", ALL)
def test_a_command_that_works_is_not_refused(version: str) -> None:
    found = serve(version, COMMON)
    assert (found.model, found.findings, found.tensor_parallel) == ("m", (), 4)
    assert (found.speculative or {})["model"] == "d"
    assert found.options["quantization"] == "fp8"


@pytest.mark.parametrize("version", ALL)
@pytest.mark.parametrize(
    ("options", "word"),
    [
        ("--tensor-parallel-size abc", "a whole number"),
        ("-tp 0", "at least 1"),
        ("-pp=-2", "at least 1"),
        ("-tp 1.5", "a whole number"),
        ("--dtype float99", "one of auto, half"),
        ("--gpu-memory-utilization much", "a number"),
        ("--max-model-len long", "such as 8192"),
        ("--frobnicate", "no option"),
        ("--frobnicate 3", "no option"),
        ("--tensor-paralel-size 8", "no option"),
        ("--enforce-eager=1", "takes no value"),
        ("--enforce-eager true", "takes no value"),
        ("--enforce-eager stray", "belongs to no option"),
        ("-tp 8 stray", "belongs to no option"),
        ("--max-num-seqs", "none follows"),
        ("--max-num-seqs --enforce-eager", "none follows"),
        ("--max 8", "may stand for"),
        ("--api-server-count 1.5", "a whole number"),
        ("'--frobnicate=a b'", "belongs to no option"),
    ],
)
def test_what_the_parser_refuses_is_told(version: str, options: str, word: str) -> None:
    (detail,) = refused(version, options)
    assert word in detail


def test_bounds_of_the_fields_from_the_source() -> None:
    assert refused("0.32.0", "--data-parallel-size 0 --gpu-memory-utilization 1.5") == [
        "--data-parallel-size is '0'; it has to be at least 1",
        "--gpu-memory-utilization is '1.5'; it has to be at most 1",
    ]
    assert refused("0.11.2", "--data-parallel-size 1") == []


def test_bounds_of_features_that_are_not_in_use_are_not_looked_at() -> None:
    assert refused("0.32.0", "--mm-encoder-fp8-scale-save-margin 0") == []
    assert len(refused("0.32.0", "--mm-encoder-fp8-scale-save-margin much")) == 1


def test_sc_before_the_release_that_has_it() -> None:
    config = '-sc \'{"method": "eagle3"}\''
    (finding,) = serve("0.17.1", config).findings
    assert "-sc is no option" in finding.detail and finding.fix == "write --speculative-config"
    assert refused("0.24.0", config) == []
    (finding,) = serve("0.18.0", "--spec-method eagle3").findings
    assert "--spec-method" in finding.detail
    assert refused("0.24.0", "--spec-method eagle3") == []


def test_a_misspelt_option_has_its_name_in_the_fix() -> None:
    (finding,) = serve("0.32.0", "--speculative-confg '{}'").findings
    assert finding.fix == "did you mean --speculative-config?"


def test_options_of_a_plugin_may_be_its_own(tmp_path: Path) -> None:
    (tmp_path / "vllm").symlink_to(sources("0.18.0").root / "vllm")
    for name, text in {
        "vllm-0.18.0.dist-info": "[vllm.general_plugins]\nlora = vllm.plugins.lora:register\n",
        "other-1.dist-info": "[console_scripts]\nx = other:main\n",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "entry_points.txt").write_text(text)
    words = ["vllm", "serve", "m", "--omni"]
    (finding,) = command_line(words, Declared(Sources(tmp_path))).findings
    assert finding.severity.value == "error"
    (tmp_path / "vllm_omni-1.dist-info").mkdir()
    (tmp_path / "vllm_omni-1.dist-info" / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nomni = vllm_omni.plugins:register\n"
    )
    (finding,) = command_line(words, Declared(Sources(tmp_path))).findings
    assert finding.severity.value == "warning"


def test_the_v0_options_are_told_once() -> None:
    (finding,) = serve("0.18.0", "--speculative-model d --num-speculative-tokens 3").findings
    assert "V0 engine" in finding.detail


def test_the_model_by_an_option() -> None:
    words = ["vllm", "serve", "--model", "m", "-tp", "2"]
    found = command_line(words, DECLARED["0.18.0"])
    assert (found.model, found.findings) == ("m", ())
    (finding,) = command_line(words, DECLARED["0.10.2"]).findings
    assert "refuses --model" in finding.detail
    (finding,) = command_line([*words, "n"], DECLARED["0.18.0"]).findings
    assert "named twice" in finding.detail


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{method: eagle3}", "double quotes"),
        ("{'method': 'eagle3'}", "JSON has double quotes"),
        ("[1]", "a list"),
        ("3", "a int"),
    ],
)
def test_json_that_is_none_says_why(text: str, word: str) -> None:
    found = arguments(f"--speculative-config {shlex.quote(text)}", DECLARED["0.18.0"])
    assert found.unreadable
    (finding,) = found.findings
    assert word in finding.detail and text in finding.detail


def test_no_speculative_config_may_be_said() -> None:
    found = arguments("--speculative-config None", DECLARED["0.18.0"])
    assert (found.speculative, found.findings, found.unreadable) == (None, (), False)


@given(st.lists(st.one_of(st.text(max_size=12), st.sampled_from(COMMON.split())), max_size=8))
def test_any_words(words: list[str]) -> None:
    command_line(["vllm", "serve", *words], DECLARED["0.24.0"])
