"""The figures of `gpu.py` as the section of docs/proof.md, and what of them is kept for it.

    python gpu_report.py FIGURES.json KEPT.json

The section is written by `report.py`, from KEPT.json in docs/: a machine with a GPU is not at hand
whenever the rest of the proof is run.
"""

import json
import sys
from pathlib import Path

DROPPED = {"tokens", "probed", "trace", "folder", "source"}

HEAD = """\
## On a GPU

Written from the figures of `tests/engine/gpu.py` on one {device}: vLLM {vllm}, torch {torch},
tiny models of random weight in float32, the stock installation opened by `apply --model`. {prompts}
prompts of {tokens} tokens each, greedy, 3 draft tokens a draft.

- **mode**: E eager, G `torch.compile` with CUDA graphs; 1 or 2, the model runner.
- **tokens**: prompts continued exactly as without a drafter in the same mode.
- **accepted**: accepted draft tokens of drafts made. The targets are built so that a drafter that
  is given the residual stream can foresee the first of its three tokens, often, not always.
- **stream**: largest difference of captured state k from the stream on entry to layer k, relative
  to the largest value there, over every forward of the run. In eager mode only: under graphs the
  layers are not called one by one.
- **reference**: largest difference of what the drafter is given, for all 8 layer ids, from the
  state that transformers computes from the same weights on the CPU, relative to the largest value
  of that state; for the rows of the prompt, and for those of the tokens after it.

Float32 is not exact there: Triton kernels multiply in TF32, which alone makes about 1e-3 against
the reference, as the native Llama shows. Compare with it, not with the CPU's 1e-6.
"""


def table(head, rows):
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


def kept(value):
    """The figures without the tokens themselves and the places on that machine."""
    if isinstance(value, dict):
        return {k: kept(v) for k, v in value.items() if k not in DROPPED}
    return [kept(v) for v in value] if isinstance(value, list) else value


def speculation(jobs):
    rows = []
    for name, job in sorted(jobs.items()):
        drafted = job["boots"].get("drafted", {})
        if "counters" not in drafted:
            continue
        target, mode, *special = name.split()
        lossless, counted, entry = job.get("lossless"), drafted["counters"], drafted.get("entry")
        worst = {k: max(v) for k, v in job["reference"]["worst"].items()}
        rows.append([
            " ".join([target, *special]) + (" (native)" if target == "llama" else ""), mode,
            "{equal} of {of}".format(**lossless) if lossless else "",
            f"{counted['accepted_tokens']} of {counted['drafts']}",
            f"{max(entry['worst'].values()):.1e}" if entry else "",
            f"{worst['prefill']:.1e} / {worst['decode']:.1e}",
        ])  # fmt: skip
    head = ["target", "mode", "tokens", "accepted", "stream", "reference, prompt / after it"]
    return table(head, rows)


def unopened(jobs):
    rows = []
    for name, job in sorted(jobs.items()):
        if name.endswith(" stock"):
            target, mode, _ = name.split()
            error = job["boots"].get("drafted", {}).get("error", "none").splitlines()[0]
            off = jobs[f"{target} {mode}"].get("off")
            told = "{differ} of {lines}".format(**off) if off else "not taken"
            same = ("equal" if off["same_tokens"] else "DIFFER") if off else "not taken"
            rows.append([target, mode, f"`{error}`", told, same])
    head = ["target", "mode", "stock, with a drafter, ends with",
            "without one: lines of Dynamo's graph that differ once opened", "tokens"]  # fmt: skip
    return table(head, rows)


def product(figures):
    rows = []
    for name, told in figures["trees"].items():
        if "revert" not in told:
            continue
        closed = [gate for gate, state in told["check"]["gates"].items() if state == "closed"]
        back = told["reverted_digest"] == figures["digest"] != told["patched_digest"]
        rows.append([
            name, ", ".join(closed), ", ".join(f"`{file}`" for file in told["apply"]["changed"]),
            "nothing" if not told["again"] else "DIFFERS",
            "every byte as before" if back else "DIFFERS",
        ])  # fmt: skip
    return table(["target", "closed", "`apply` writes", "again", "after `revert`"], rows)


def unequal(jobs):
    """Where a continuation differs: how close the two best words were for transformers."""
    lines = []
    for name, job in sorted(jobs.items()):
        for gap in job.get("lossless", {}).get("gaps", ()):
            lines.append(
                f"- {name}: after {gap['at']} tokens the reference's two best logits, the higher "
                f"{gap['best']:.2f}, are {gap['gap']:.4f} apart."
            )
    if not lines:
        return "Every prompt is continued alike.\n"
    return "Where a prompt is continued otherwise:\n\n" + "\n".join(lines) + "\n"


def section(figures):
    jobs = figures["jobs"]
    known = next(job for job in jobs.values() if "device" in job)
    return "\n".join([
        HEAD.format(prompts=figures["prompts"], tokens=figures["tokens_each"], **{
            key: known[key] for key in ("device", "vllm", "torch")}),
        speculation(jobs), unequal(jobs),
        "`cohere naive` is the counter-check: the stale residual added once more. Neither tokens "
        "nor acceptance tell it; only the reference does.\n",
        "### Before `apply`, and off\n", unopened(jobs),
        "### The installation\n", product(figures),
    ])  # fmt: skip


def main():
    figures, path = kept(json.loads(Path(sys.argv[1]).read_text())), Path(sys.argv[2])
    path.write_text(json.dumps(figures, indent=1) + "\n")
    print(section(figures))


if __name__ == "__main__":
    main()
