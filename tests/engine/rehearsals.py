"""What is rehearsed: published models' numbers, and pairs with a fault put in on purpose."""

import json
import os
import subprocess
import sys
from pathlib import Path

import environments

sys.path.insert(0, str(Path(__file__).parents[1]))

from preflight import published
from preflight.folders import write_model
from rehearsal import models

NATIVE, OLD = "0.32.0", "0.17.1"
# Those of the list that vLLM 0.32.0 serves with EAGLE-3 as it is, and those it does not.
PASSING = (
    "Kimi-K2.5", "DeepSeek-V3", "Llama-3.1-8B", "Qwen3-8B", "Qwen3-30B-A3B", "gpt-oss-20b",
    "OLMo-2-7B", "Phi-3-mini", "Mistral-Small-3.1", "Qwen2.5-VL-7B",
)  # fmt: skip
LACKING = ("GLM-4.5-Air", "Gemma-3-27B", "Mixtral-8x7B", "Command-R")
STANDINS = Path(__file__).parent / "standins"
WITHOUT_TORCHVISION = ("Gemma-3-27B", "Mistral-Small-3.1", "Qwen2.5-VL-7B")
SAMPLE = ("Kimi-K2.5", "Llama-3.1-8B", "Mixtral-8x7B")  # of the short run

LLAMA, DRAFTER = models.LLAMA31_8B, published.LLAMA31_YUHUILI
SHAPES = published.tensors(DRAFTER, LLAMA)
DRAFTERS = {"Kimi-K2.5": published.KIMI_MHA, "Llama-3.1-8B": DRAFTER}


def speculative(**settings):
    whole = {"method": "eagle3", "num_speculative_tokens": 3, **settings}
    return ["--serve-args", f"--speculative-config '{json.dumps(whole)}'"]


def ids(*layer_ids):
    return {**DRAFTER, "eagle_aux_hidden_state_layer_ids": list(layer_ids)}


BUILT, FIRST = "drafter built", "first token"
# Read by the server's own parser; the last two are not for a twin: the second opens a port.
HONOURED = "--logprobs_mode raw_logits --additional-config.answer 42"
LEFT_OUT = """--max-model-len 2k --kv-events-config '{"enable_kv_cache_events": true}'"""
OPTIONS = {"Llama-3.1-8B": ["--serve-args", f"{HONOURED} {LEFT_OUT}"]}
# name -> the drafter's config and tensors, options, and (stage, class) where it must end
FAULTS = {
    "unknown-key": (DRAFTER, SHAPES, speculative(bogus=1), ("configs", "argument")),
    "two-states": (DRAFTER, published.tensors(DRAFTER, LLAMA, states=2), [], (BUILT, "aux-shape")),
    "id-out-of-range": (ids(2, 16, 40), SHAPES, [], (FIRST, "aux-shape")),
    "unknown-option": (DRAFTER, SHAPES, ["--serve-args=--bogus"], ("configs", "argument")),
    "draft-tensor-parallel": (
        DRAFTER,
        SHAPES,
        speculative(draft_tensor_parallel_size=2),
        ("configs", "draft-tensor-parallel"),
    ),
    "no-such-class": (
        {**DRAFTER, "architectures": ["NoSuchForCausalLM"]},
        SHAPES,
        [],
        ("configs", "drafter"),
    ),
    "wider": (
        published.LLAMA33_MODELOPT,
        published.tensors(published.LLAMA33_MODELOPT, published.LLAMA33_70B),
        [],
        (FIRST, "aux-shape"),
    ),
    "whole-vocabulary": (
        DRAFTER,
        SHAPES | {"lm_head.weight": (128256, 4096)},
        [],
        (BUILT, "aux-shape"),
    ),
    "of-another-class": (
        DRAFTER,
        SHAPES | {"fc_norm.0.weight": (4096,)},
        [],
        (BUILT, "drafter"),
    ),
}


def rehearse(lab, name):
    """The answer of `rehearse --json` for one of the names above; `VERSION NAME [apply]`."""
    version, case, *options = name.split(" ")
    folder = lab.folder / "rehearsals" / name.replace(" ", "-")
    if case in FAULTS:
        config, shapes, more, _ = FAULTS[case]
        target = LLAMA
    else:
        target = models.MODELS[case]
        config, shapes = DRAFTERS.get(case) or models.llama_drafter(target), None
        more = OPTIONS.get(case, [])
    write_model(folder / "target", target)
    write_model(folder / "drafter", config, shapes)
    more = [*more, *(f"--{option}" for option in options)]
    python = environments.python_of(environments.environment_of(version))
    site = environments.stock(version)
    program = [sys.executable, "-m", "vllm_eagle3_patches", "rehearse", folder / "target"]
    before = snapshot(site)
    path = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    path += [str(STANDINS)] if case in WITHOUT_TORCHVISION else []
    done = subprocess.run(
        [*map(str, program), "--drafter", str(folder / "drafter"), "--python", str(python),
         "--json", *more],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        capture_output=True,
        text=True,
        cwd=folder,
    )  # fmt: skip
    assert done.stdout, f"{name} said nothing\n{done.stderr}"
    return {**json.loads(done.stdout), "said": done.stderr, "untouched": snapshot(site) == before}


def snapshot(site):
    """Every file of the package with size and time: what a write would change."""
    return {
        str(path.relative_to(site)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in site.rglob("*")
        if path.is_file()
    }


def names(which, *, everything):
    """The rehearsals of a kind: a sample, or all."""

    def some(listed):
        return [f"{NATIVE} {n}" for n in listed if everything or n in SAMPLE]

    found = {
        "passing": [*some(PASSING), *(f"{name} apply" for name in some(LACKING))],
        "lacking": some(LACKING),
        "faults": [f"{NATIVE} {n}" for n in FAULTS][: None if everything else 2],
        "stock": [f"{OLD} Kimi-K2.5"],
        "applied": [
            f"{OLD} {n} apply" for n in ("Kimi-K2.5", "DeepSeek-V3")[: 2 if everything else 1]
        ],
        "options": [f"{NATIVE} {n}" for n in OPTIONS],
        "kimi": [f"{NATIVE} Kimi-K2.5"],
    }
    return found[which]
