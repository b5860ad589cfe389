"""All checks together: never an exception, no state between them, no name that is not agreed."""

from __future__ import annotations

import copy
import json
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real import sources

from preflight.examining import findings
from preflight.published import (
    KIMI_K25,
    KIMI_MHA,
    KIMI_MLA_31,
    LLAMA31_8B,
    QWEN3_4B,
    QWEN3_SPECFORGE,
    SPECULATORS,
    Config,
    tensors,
    with_settings,
)
from vllm_eagle3_patches.preflight import CLASSES, Finding, Severity
from vllm_eagle3_patches.preflight.report import lines, summary
from vllm_eagle3_patches.sources import Sources

PAIRS = [(KIMI_K25, KIMI_MHA), (KIMI_K25, KIMI_MLA_31), (LLAMA31_8B, SPECULATORS)]
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2**40),
    st.floats(allow_nan=False),
    st.text(max_size=4),
    st.lists(st.one_of(st.none(), st.integers(-3, 70), st.text(max_size=3)), max_size=4),
    st.dictionaries(st.sampled_from(["rope_type", "type", "factor", "x"]), st.none()),
)


def _settings(config: Config, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in config.items():
        found.append((*path, key))
        if isinstance(value, dict):
            found += _settings(value, (*path, key))
    return found


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_any_config_gets_an_answer(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(["0.10.2", "0.15.0", "0.18.0", "0.24.0", "0.32.0"]))
    pair = [copy.deepcopy(c) for c in data.draw(st.sampled_from(PAIRS))]
    shapes = tensors(pair[1], pair[0])
    for _ in range(data.draw(st.integers(1, 3))):
        config = pair[data.draw(st.integers(0, 1))]
        *path, key = data.draw(st.sampled_from(_settings(config)))
        holder: Any = config
        for part in path:
            holder = holder.get(part) if isinstance(holder, dict) else None
        if isinstance(holder, dict) and key != "architectures":
            holder[key] = data.draw(ODD)
    args = data.draw(st.sampled_from(["", "-tp 8", "-pp 3", "--max-model-len 1k --dtype half"]))
    for finding in findings(version, pair[0], pair[1], shapes, args=args):
        assert finding.cls in CLASSES and finding.detail and finding.fix
        json.dumps(finding.as_json())


@pytest.mark.parametrize("model_type", ["", "0 ", 'a"b'])
def test_a_model_type_that_is_no_name_does_not_hide_what_else_is_wrong(model_type: str) -> None:
    target = copy.deepcopy(KIMI_K25)
    target["text_config"]["model_type"] = model_type
    drafter = with_settings(KIMI_MHA, draft_vocab_size=7)
    shapes = tensors(KIMI_MHA, KIMI_K25)
    assert any(
        finding.cls == "aux-shape" for finding in findings("0.17.1", target, drafter, shapes)
    )


@pytest.mark.parametrize("order", [1, -1])
def test_same_answer_every_time(order: int) -> None:
    nested = with_settings(QWEN3_SPECFORGE, eagle_config={"layer_ids": [9, 9, 70]})
    versions = ["0.15.0", "0.32.0"][::order]
    found = {version: findings(version, QWEN3_4B, nested) for version in versions}
    assert found == {version: findings(version, QWEN3_4B, nested) for version in versions}
    assert all(found.values())


def test_all_findings_not_the_first() -> None:
    drafter = with_settings(
        KIMI_MLA_31, model_type="deepseek_v3", draft_vocab_size=1000, max_position_embeddings=2048
    )
    found = findings("0.15.0", KIMI_K25, drafter, args="-tp 8 -pp 2 --dtype half")
    assert {f.cls for f in found} >= {"drafter", "pipeline-parallel", "aux-capture"}
    drafter = with_settings(QWEN3_SPECFORGE, head_dim=64, draft_vocab_size=9, norm_output=True)
    shapes = {**tensors(QWEN3_SPECFORGE, QWEN3_4B), "fc.weight": (2560, 5120)}
    found = findings("0.15.0", QWEN3_4B, drafter, shapes, args="--speculative-config.metod x")
    assert {f.cls for f in found} >= {"aux-shape", "argument", "aux-layers", "ignored-setting"}
    assert len([f for f in found if f.cls == "aux-shape"]) >= 4


def test_damaged_vllm_is_said_not_raised() -> None:
    broken = Sources(
        sources("0.18.0").root, {"vllm/config/speculative.py": b"class SpeculativeConfig(:\n"}
    )
    found = findings("0.18.0", KIMI_K25, KIMI_MHA, args="--speculative-config.a 1", where=broken)
    assert "unknown" in {f.cls for f in found}


def test_about_a_second() -> None:
    """With nothing read before; the slowest release is the newest."""
    fresh = Sources(sources("0.32.0").root)
    start = time.process_time()
    findings("0.32.0", KIMI_K25, KIMI_MHA, where=fresh)
    assert time.process_time() - start < 3  # 0.6 s on an idle machine


def test_unknown_class_is_refused() -> None:
    with pytest.raises(ValueError, match="no such class"):
        Finding("shape", Severity.ERROR, "detail", "fix")


def test_report() -> None:
    one = Finding("aux-shape", Severity.ERROR, "detail " * 30, "fix it")
    two = Finding("length", Severity.WARNING, "long", "shorten")
    text = "\n".join(lines([one, two]))
    assert "  error    aux-shape\n" in text and "fix: fix it" in text
    assert max(map(len, text.splitlines())) <= 100
    assert "\x1b[31m" in "\n".join(lines([one], coloured=True))
    assert summary([one, one, two]) == "drafter: 2 errors, 1 warning"
    assert summary([]) == "the drafter fits: nothing found"
