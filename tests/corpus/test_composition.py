"""Several targets in one installation: each goes in and out alone, in any order, byte for byte."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

import pytest
from command import difference, snapshot
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from real import sources
from wheels import tree

from vllm_eagle3_patches import installation, operations
from vllm_eagle3_patches.installation import Installation
from vllm_eagle3_patches.operations import DEPENDS
from vllm_eagle3_patches.sources import Sources
from vllm_eagle3_patches.target import Request

# Of different shapes, and some share files: up to 0.21.1 all need the list of model types; GPT2
# needs aliases, and the wrapper a branch of the drafter's loader.
TARGETS = {
    "0.17.1": {
        "Glm4MoeForCausalLM": "glm4_moe",
        "CohereForCausalLM": "cohere",
        "GPT2LMHeadModel": "gpt2",
        "KimiVLForConditionalGeneration": "kimi_vl",
    },
    "0.32.0": {
        "Glm4MoeForCausalLM": "glm4_moe",
        "CohereForCausalLM": "cohere",
        "GPT2LMHeadModel": "gpt2",
        "KimiVLForConditionalGeneration": "kimi_vl",
    },
}


def wanted(version: str, name: str) -> Request:
    return Request(name, TARGETS[version][name])


@cache
def read(version: str) -> list[str]:
    """Every file that the operations read for these targets."""
    where = Sources(sources(version).root)
    for name in TARGETS[version]:
        target = operations.find(where, wanted(version, name), version)
        made = operations.plan.make(where, [target], version)
        after = where.with_overlay(made.after)
        again = operations.find(after, wanted(version, name), version)
        operations.plan.findings(after, again)
        for path in after.asked_for():
            where.exists(path)
    return [path for path in {*where.asked_for(), *DEPENDS} if where.exists(path)]


def lay(into: Path, version: str) -> Installation:
    origin, site = tree(version), into / "site-packages"
    [info] = origin.glob("*.dist-info")
    shutil.copytree(info, site / info.name, copy_function=shutil.copyfile)
    for path in ["vllm/__init__.py", *read(version)]:
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(origin / path, site / path)
    return installation.find(site_packages=str(site))


@pytest.mark.parametrize("version", TARGETS)
def test_in_and_out_in_any_order(version: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    found = lay(tmp_path_factory.mktemp("order"), version)
    pristine = snapshot(found.root)
    names = sorted(TARGETS[version])
    seen: dict[frozenset[str], dict[str, tuple[object, ...]]] = {frozenset(): pristine}

    def step(name: str, applied: frozenset[str]) -> frozenset[str]:
        """Applies the target, or takes it back where it is applied."""
        if name in applied:
            report = operations.revert(found, wanted(version, name))
            after = applied - {name}
        else:
            report = operations.apply(found, wanted(version, name))
            after = applied | {name}
        assert report.exit == 0
        now = snapshot(found.root)
        if after not in seen:
            seen[after] = now
            for one in names:
                assert (operations.check(found, wanted(version, one)).exit == 0) is (one in after)
        assert difference(seen[after], now) == set(), (name, sorted(applied))
        return after

    @settings(
        derandomize=True, database=None, deadline=None, max_examples=3,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.permutations(names), st.permutations(names), st.integers(1, len(names)))
    def check(way_in: list[str], way_out: list[str], stop: int) -> None:
        applied: frozenset[str] = frozenset()
        for name in way_in[:stop]:
            applied = step(name, applied)
        for name in [n for n in way_out if n in applied]:
            applied = step(name, applied)
        assert difference(pristine, snapshot(found.root)) == set()

    check()


@pytest.mark.parametrize("version", TARGETS)
def test_revert_of_all_at_once(version: str, tmp_path: Path) -> None:
    found = lay(tmp_path, version)
    pristine = snapshot(found.root)
    for name in TARGETS[version]:
        assert operations.apply(found, wanted(version, name)).exit == 0
    operations.revert(found)
    assert difference(pristine, snapshot(found.root)) == set()
