"""Boots the engine on the twins, with the drafter and without, and looks.

Runs in the target's interpreter; what it finds goes to the parent as events, what vLLM says to
standard output and error.
"""

from __future__ import annotations

import gc
import json
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from typing import Any

from vllm_eagle3_patches.rehearsal.inside import events, hooks, old_cpu, options, watch
from vllm_eagle3_patches.rehearsal.inside.events import Failed
from vllm_eagle3_patches.rehearsal.stages import (
    DRAFTS,
    ENTRY,
    FIRST_TOKEN,
    REFERENCE,
    SAME_TOKENS,
)

TOKENS = 24
EXACT = 1e-4  # float32: relative to the largest value
ROUGH = 0.06  # bfloat16, or float32 with TF32 kernels


def main(path: str) -> None:
    request = json.loads(Path(path).read_text())
    events.to(request["events"])
    code = 0
    try:
        run(path, request)
    except Failed as reason:
        events.failed(None, str(reason), shown=True)
        code = 1
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        said = f"{type(error).__name__}: {error}"[:2000]
        if isinstance(error, SystemExit):  # its words are in the log
            said = "vLLM's parser refuses the command's options"
        events.failed(None, said, raised=True)
        code = 1
    events.send("end", code=code)


def run(path: str, request: dict[str, Any]) -> None:
    import vllm

    gc.freeze()  # what the import made stays anyway; looking through it takes seconds
    from vllm_eagle3_patches.rehearsal.inside import platform

    events.send("imported", vllm=vllm.__version__, source=vllm.__file__, **platform.facts())
    made = wait_for_twins(request)
    watching = watch.install(path)
    kind = platform.kind(request)
    if kind.speculates:
        tokens, states, figures = with_drafter(request, kind)
        clean_up(watching)
        same_tokens(request, kind, tokens)
    else:
        states, figures = without_drafting(request, kind, watching)
    found = [states]
    if kind.compiled:
        clean_up(watching)
        states, figures = eager(request, kind)
        found.append(states)
    entry(figures, kind)
    reference(request, made, found, kind)


def wait_for_twins(request: dict[str, Any]) -> dict[str, Any]:
    """The parent writes this file when the other process has made the weights."""
    ready = Path(request["folder"]) / "ready.json"
    while not ready.exists():
        time.sleep(0.05)
    return json.loads(ready.read_text())  # type: ignore[no-any-return]


def prompts(request: dict[str, Any]) -> list[dict[str, Any]]:
    whole = request["prompt"]
    return [{"prompt_token_ids": whole[: len(whole) - 7 * n]} for n in range(3)]


def generate(llm: Any, inputs: list[dict[str, Any]], tokens: int, **more: Any) -> Any:
    from vllm import SamplingParams

    sampling = SamplingParams(
        temperature=0, ignore_eos=True, max_tokens=tokens, detokenize=False, **more
    )
    return llm.generate(inputs, sampling, use_tqdm=False)


def counters(llm: Any) -> dict[str, int]:
    names = {"drafts", "draft_tokens", "accepted_tokens"}
    found = {m.name.split("spec_decode_num_")[-1]: m for m in llm.get_metrics()}
    return {name: found[name].value for name in names if name in found}


def attach(llm: Any, request: dict[str, Any], *, stream: bool) -> None:
    attached = llm.apply_model(
        partial(
            hooks.attach,
            layers=request["layers"],
            stream=stream,
            rows=len(request["prompt"]),
        )
    )
    if not all(attached):
        print("rehearsal: the decoder layers were not found; their entries are not compared")


def with_drafter(request: dict[str, Any], kind: Any) -> tuple[Any, Any, Any]:
    from vllm import LLM

    llm = LLM(**options.engine(request, kind, drafter=True))
    attach(llm, request, stream=not kind.compiled)
    events.begin(FIRST_TOKEN)
    first = generate(llm, prompts(request)[:1], 1)
    events.passed(FIRST_TOKEN, token=first[0].outputs[0].token_ids[0])
    states = llm.apply_model(partial(hooks.states, tokens=len(request["prompt"])))[0]
    events.begin(DRAFTS)
    outputs = generate(llm, prompts(request), TOKENS)
    counted = counters(llm)
    if not counted.get("drafts"):
        raise Failed("it generated, and drafted nothing")
    detail = f"{counted['drafts']} drafts, {counted['draft_tokens']} tokens"
    detail += f", {counted['accepted_tokens']} accepted"
    events.passed(DRAFTS, detail, **counted)
    figures = llm.apply_model(hooks.figures)[0]
    return [list(o.outputs[0].token_ids) for o in outputs], states, figures


def without_drafting(request: dict[str, Any], kind: Any, watching: watch.Watch) -> tuple[Any, Any]:
    """Where a CPU build cannot draft: the start-up with the drafter, then the capture without."""
    from vllm import LLM

    old_cpu.install()
    llm = LLM(**options.engine(request, kind, drafter=True))
    ids = llm.apply_model(watch.aux_layers)[0]
    del llm
    clean_up(watching)
    for stage in (FIRST_TOKEN, DRAFTS, SAME_TOKENS):
        events.left(stage, old_cpu.WHY)
    llm = LLM(**options.engine(request, kind, drafter=False))
    attach(llm, request, stream=True)
    llm.apply_model(partial(hooks.capture, ids=list(ids)))
    generate(llm, prompts(request)[:1], 1)
    states = llm.apply_model(partial(hooks.states, tokens=len(request["prompt"])))[0]
    generate(llm, prompts(request), TOKENS)
    return states, llm.apply_model(hooks.figures)[0]


def same_tokens(request: dict[str, Any], kind: Any, tokens: list[list[int]]) -> None:
    from vllm import LLM

    events.begin(SAME_TOKENS)
    llm = LLM(**options.engine(request, kind, drafter=False))
    outputs = generate(llm, prompts(request), TOKENS)
    total = sum(map(len, tokens))
    detail = f"{total} tokens of {len(tokens)} prompts"
    for number, (found, output) in enumerate(zip(tokens, outputs, strict=True)):
        expected = list(output.outputs[0].token_ids)
        if found != expected:
            place = next(i for i, (a, b) in enumerate(zip(found, expected, strict=False)) if a != b)
            gap = lead(llm, prompts(request)[number], expected, place)
            if gap > kind.tie:
                raise Failed(
                    f"prompt {number}: token {place} is {found[place]} with the drafter, "
                    f"{expected[place]} without (log-probabilities {gap:.2g} apart)"
                )
            detail += f"; prompt {number} up to token {place}, a tie within rounding ({gap:.1g})"
    events.passed(SAME_TOKENS, detail)


def lead(llm: Any, prompt: dict[str, Any], tokens: list[int], place: int) -> float:
    """By how much the best token at that place is ahead of the second, in log-probability.

    Asked only where tokens differ: vLLM compiles a kernel for it, twenty seconds on a CPU.
    """
    whole = {"prompt_token_ids": prompt["prompt_token_ids"] + tokens[:place]}
    (output,) = generate(llm, [whole], 1, logprobs=2)
    best = sorted((p.logprob for p in output.outputs[0].logprobs[0].values()), reverse=True)
    return float(best[0] - best[1])


def eager(request: dict[str, Any], kind: Any) -> tuple[Any, Any]:
    """Once more without compilation, where every layer is called and can be watched."""
    from vllm import LLM

    events.begin(ENTRY)
    llm = LLM(**options.engine(request, kind.as_eager(), drafter=True))
    attach(llm, request, stream=True)
    generate(llm, prompts(request)[:1], 1)
    states = llm.apply_model(partial(hooks.states, tokens=len(request["prompt"])))[0]
    generate(llm, prompts(request), TOKENS)
    return states, llm.apply_model(hooks.figures)[0]


def entry(figures: dict[str, Any], kind: Any) -> None:
    events.begin(ENTRY)
    wrong = [pair for pair in figures["captured_and_asked"] if pair[0] != pair[1]]
    if wrong:
        raise Failed(f"{wrong[0][0]} states where {wrong[0][1]} layers were asked for")
    if not figures["compared"]:
        return events.skipped(ENTRY, "the decoder's layers were not found in this model")
    for layer_id in map(str, figures["ids"]):
        if layer_id in figures["difference"]:
            difference, size = figures["difference"][layer_id], figures["size"][layer_id]
            if difference > kind.exact * max(size, 1e-9):
                raise Failed(f"state {layer_id} differs by {difference:.3g} of {size:.3g}")
    missing = [i for i in figures["ids"] if str(i) not in figures["difference"]]
    worst = max(figures["difference"].values())
    detail = f"{figures['forwards']} forwards, largest difference {worst:.2g}"
    detail += f"; {', '.join(map(str, missing))} not compared" if missing else ""
    if figures["residual_or_not"]:
        detail += "; with or without the residual, which these layers may not use"
    return events.passed(ENTRY, detail, **figures)


def reference(
    request: dict[str, Any], made: dict[str, Any], runs: list[dict[str, Any]], kind: Any
) -> None:
    """Against Transformers' states; `runs`: as served, and eager where that is another one."""
    events.begin(REFERENCE)
    if not made.get("reference"):
        return events.skipped(REFERENCE, made.get("why", "Transformers has no such model"))
    from safetensors.torch import load_file

    expected = load_file(Path(request["folder"]) / "reference.safetensors")
    found: dict[str, float] = {}
    for states in runs:
        for k, state in states.items():
            if k in expected:
                found[k] = max(found.get(k, 0.0), relative(state, expected[k]))
    if not found:
        return events.skipped(REFERENCE, "the reference has no state of these ids")
    wrong = {k: v for k, v in found.items() if v > kind.close}
    if wrong:
        layer_id, difference = max(wrong.items(), key=lambda item: item[1])
        raise Failed(f"state {layer_id} is off by {difference:.3g} of its largest value")
    detail = f"largest difference {max(found.values()):.2g} of the largest value"
    detail += "" if all(runs) else "; eager only"
    return events.passed(REFERENCE, detail, differences=found)


def relative(state: Any, expected: Any) -> float:
    return float(((state - expected).abs().max() / expected.abs().max()).item())


def clean_up(watching: watch.Watch) -> None:
    """Leave nothing of this engine to the next one in the process."""
    from vllm.distributed import cleanup_dist_env_and_memory

    watching.release()
    gc.collect()
    cleanup_dist_env_and_memory()
    gc.collect()
