import pytest
from real import CLOSED, NATIVE, sources

from vllm_eagle3_patches.gates import proposer


@pytest.mark.parametrize("version", [*CLOSED, *NATIVE])
def test_finds_the_class_that_loads_the_drafter(version: str) -> None:
    minor = int(version.split(".")[1])
    loader = proposer.find(sources(version))
    assert loader.cls == ("EagleProposer" if minor <= 14 else "SpecDecodeBaseProposer")
    assert loader.path == (
        "vllm/v1/spec_decode/eagle.py" if minor < 20 else "vllm/v1/spec_decode/llm_base_proposer.py"
    )
    assert loader.method.name == "load_model"
