"""The figures of `gpu.py` as the section of docs/proof.md, and what of them is kept for it.

    python gpu_report.py EXACT.json DEFAULT.json KEPT.json

The two are of runs with and without `--exact`. `report.py` writes the section, from KEPT.json in
docs/: a machine with a GPU is not at hand whenever the rest of the proof is run.
"""

import json
import sys
from pathlib import Path

KEPT = Path(__file__).parents[2] / "docs/gpu-0.26.0.json"
LABELS = {"exact": "float32", "default": "TF32"}
KINDS = ("prefill", "decode")
DROPPED = {"tokens", "probed", "trace", "folder", "source"}

HEAD = """\
## On a GPU

Written from the figures of `tests/engine/gpu.py`, kept in `{kept}`:
one {device}, vLLM {vllm}, torch {torch}; tiny models of random weight in float32, each on a copy
of the stock installation that `apply --model` opened. {prompts} prompts of {tokens} tokens each,
greedy, 3 draft tokens a draft, the states of all 8 layer ids asked for. `gemma3_mm` is the wrapper
`Gemma3ForConditionalGeneration`, whose language model `apply` opens with it; text alone was asked.

- **mode**: E eager, G `torch.compile` with CUDA graphs (`{cudagraphs}`); 1 or 2, the model
  runner.
- **tokens**: prompts continued exactly as without a drafter in the same mode.
- **accepted**: accepted draft tokens of drafts made. The targets are built so that a drafter that
  is given the residual stream foresees the first of its three tokens: often, not always.
- **stream**: largest difference of captured state k from the stream on entry to layer k, relative
  to the largest value there, over every forward of the run. In eager mode only: under graphs the
  layers are not called one by one.
- **reference**: largest difference of what the drafter is given from the state that transformers
  computes from the same weights on the CPU, relative to the largest value of that state; for the
  rows of the prompt / of the tokens after it.

Triton's kernels multiply float32 in TF32 by default on such a card. With
`TRITON_F32_DEFAULT=ieee` they do not, and everything is as close to the reference as on the CPU;
both are shown. To repeat it, once with and once without `--exact`:
`python tests/engine/gpu.py --site SITE --work FOLDER --out FIGURES.json`; its head says what that
takes.
"""

NATIVE = """\
Llama is native and shows what upstream's own capture does on the same card. In eager mode its
state of layer id 0 is off by {off:.1f}, in either reckoning, and only that one: by the source, the
mixin hands out the embedding itself, and the kernel that adds to the stream writes into it. Its
rows count ids 1 to 7 there. What `apply` writes takes a copy, and is right at id 0 too.
"""


def table(head, rows):
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


def kept(value):
    """The figures without the tokens themselves and the places on that machine."""
    if isinstance(value, dict):
        return {k: kept(v) for k, v in value.items() if k not in DROPPED}
    return [kept(v) for v in value] if isinstance(value, list) else value


def speculation(both):
    rows = []
    jobs = both["exact"]["jobs"]
    for name in sorted(jobs, key=lambda name: (name.split()[0], name.split()[2:], name)):
        job = jobs[name]
        target, mode, *special = name.split()
        if special == ["stock"]:
            continue
        other, first = both["default"]["jobs"][name], first_id(name)
        drafted, entry = job["boots"]["drafted"], job["boots"]["drafted"].get("entry")
        label = f"{target}, native" if target == "llama" else " ".join([target, *special])
        rows.append([
            label, mode, taken(drafted), same(job), reference(job, first),
            f"{max(list(entry['worst'].values())[first:]):.2g}" if entry else "",
            same(other), reference(other, first),
        ])  # fmt: skip
    head = ["target", "mode", "accepted", "tokens", "reference", "stream", "tokens, TF32",
            "reference, TF32"]  # fmt: skip
    return table(head, rows)


def first_id(name):
    """Upstream's Llama is not right at id 0 in eager mode: told in words, not in the table."""
    return 1 if name.startswith("llama E") else 0


def taken(drafted):
    return "{accepted_tokens} of {drafts}".format(**drafted["counters"])


def same(job):
    return "{equal} of {of}".format(**job["lossless"])


def reference(job, first):
    return " / ".join(f"{max(job['reference']['worst'][k][first:]):.1e}" for k in KINDS)


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


def unequal(both):
    """Where a continuation differs: how close the two best words were for transformers."""
    lines = []
    for how, figures in both.items():
        for name, job in sorted(figures["jobs"].items()):
            for gap in job.get("lossless", {}).get("gaps", ()):
                lines.append(
                    f"- {name}, {LABELS[how]}: after {gap['at']} tokens; the reference's two best "
                    f"logits there are {gap['best']:.2f} and {gap['best'] - gap['gap']:.2f}."
                )
    if not lines:
        return "Every prompt is continued alike.\n"
    return (
        "Where a prompt is continued otherwise than without a drafter, the two best words are "
        "about as close as the states are to the reference:\n\n" + "\n".join(lines) + "\n"
    )


def section(both):
    figures = both["exact"]
    jobs = figures["jobs"]
    known = next(job for job in jobs.values() if "device" in job)
    graphs = jobs["llama G2"]["boots"]["drafted"]["graphs"]["mode"]
    off = jobs["llama E1"]["boots"]["drafted"]["entry"]["worst"]["0"]
    head = HEAD.format(
        kept=f"docs/{KEPT.name}", prompts=figures["prompts"], tokens=figures["tokens_each"],
        cudagraphs=graphs, **{key: known[key] for key in ("device", "vllm", "torch")},
    )  # fmt: skip
    return "\n".join([
        head, speculation(both), unequal(both),
        "`cohere naive` is the counter-check: the stale residual added once more. Neither tokens "
        "nor\nacceptance tell it; only the states do.\n",
        NATIVE.format(off=off),
        "### Before `apply`, and off\n", unopened(jobs),
        "### The installation\n", product(figures),
    ])  # fmt: skip


def main():
    exact, default = (kept(json.loads(Path(path).read_text())) for path in sys.argv[1:3])
    both = {"exact": exact, "default": default}
    Path(sys.argv[3]).write_text(json.dumps(both, indent=1) + "\n")
    print(section(both))


if __name__ == "__main__":
    main()
