from pathlib import Path

import pytest
from real import CLOSED, DEEPSEEK, DEEPSEEK_V32, KIMI, NATIVE, WITH_KIMI, WITH_V32, sources, text

from vllm_eagle3_patches import registry
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.registry import Entry
from vllm_eagle3_patches.sources import Sources


def read(content: str) -> dict[str, Entry]:
    return registry.read(Sources(Path("/nowhere"), {registry.PATH: content.encode()}))


@pytest.mark.parametrize("version", [*CLOSED, *NATIVE])
def test_the_real_tables(version: str) -> None:
    entries = registry.read(sources(version))
    assert len(entries) > 150
    lines = text(version, registry.PATH).splitlines()
    for name, entry in entries.items():
        assert entry.architecture == name
        assert f'"{name}"' in lines[entry.line - 1]
    assert (KIMI in entries) == (version in WITH_KIMI or version in NATIVE)
    assert (DEEPSEEK_V32 in entries) == (version in WITH_V32 or version in NATIVE)
    assert entries[DEEPSEEK].module == "deepseek_v2"
    assert entries["LlamaForCausalLMEagle3" if version > "0.10.2" else "Eagle3LlamaForCausalLM"]
    assert "EagleLlamaForCausalLM" in {
        entry.cls for entry in entries.values() if entry.table == registry.SPECULATIVE
    }


@pytest.mark.parametrize("version", [*CLOSED, *NATIVE])
def test_the_real_class_of_an_entry(version: str) -> None:
    entry = registry.read(sources(version))[DEEPSEEK]
    (site,) = registry.classes(sources(version), entry)
    assert (site.name, site.path) == (DEEPSEEK, "vllm/model_executor/models/deepseek_v2.py")


@pytest.mark.parametrize("version", [v for v in NATIVE if v > "0.28"])
def test_an_absolute_module_name(version: str) -> None:
    entry = registry.read(sources(version))[DEEPSEEK_V32]
    assert entry.module.startswith("vllm.")
    assert len(registry.classes(sources(version), entry)) > 1


def test_only_dictionaries_of_pairs_are_tables() -> None:
    entries = read(
        "_A = {'X': ('m', 'C'), 'Y': ('m',), 'Z': 'm', 3: ('m', 'C'), **others}\n"
        "_B: dict[str, tuple[str, str]] = {'W': ('vllm.n', 'D')}\n"
        "_C: dict[str, str]\n"
        "_D['V'] = {'V': ('m', 'C')}\n"
        "_E = [('m', 'C')]\n"
    )
    assert entries == {
        "X": Entry("X", "m", "C", "_A", 1),
        "W": Entry("W", "vllm.n", "D", "_B", 2),
    }


@pytest.mark.parametrize("content", ["", "_A = {}\n", "_A = {**_B}\n", "_A = make()\n"])
def test_a_registry_without_tables_is_refused(content: str) -> None:
    with pytest.raises(RefusedError, match="no table of architectures") as raised:
        read(content)
    assert raised.value.where == registry.PATH


@pytest.mark.parametrize(
    "entry",
    [
        Entry("X", "no_such_module", "X", "_A", 7),
        Entry("X", "deepseek_v2", "NoSuchClass", "_A", 7),
        Entry("X", "vllm.no.such", "X", "_A", 7),
    ],
)
def test_an_entry_whose_class_is_not_there_is_refused(entry: Entry) -> None:
    with pytest.raises(RefusedError, match="not in the installed package") as raised:
        registry.classes(sources("0.17.1"), entry)
    assert raised.value.where == f"{registry.PATH}:7"
