"""The proof as tables, from the results of the last green run.

python tests/engine/report.py [FILE]
"""

import json
import re
import sys
from pathlib import Path

import environments
import gpu_report
import jobs
import zoo_jobs

HEAD = """\
# Proof on the real engine

Written by `make engine-report` from the figures of a run of `make engine` in which every test
passed: real vLLM on the CPU with tiny models of random weight, patched by the product's own
`apply`. Greedy, float32, {prompts} prompts of {tokens} tokens each; 3 draft tokens a draft.

- **accepted**: accepted draft tokens of drafts made. The drafters are built to foresee the first of
  their three tokens; with wrong states they foresee next to none.
- **tokens**: whether greedy tokens equal those without a drafter.
- **stream**: largest difference between captured state k and the residual stream on entry to layer
  k, over every forward of the run.
- **reference**: largest difference from the state that transformers computes from the same weights,
  relative to the largest value there.
"""

ZOO = """\
Tiny models of random weight, several opened in one installation. The drafter is given the state of
every layer; its weights are random too, so that next to nothing is accepted and every draft is
taken back. Difference as above, the worst of all layers; *hooks* where transformers has no such
model: what the first norm in a layer is given while the engine runs.
"""


def table(head, rows):
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, ["---"] * len(head), *rows)]
    return "\n".join(lines) + "\n"


def ids(layer_ids):
    return ", ".join(map(str, layer_ids))


def speculation(results):
    rows = []
    for name, life in of("life", results):
        for scenario, answer in life["patched"].items():
            model, drafter = scenario.split("/")
            if "states" not in answer:
                continue
            states, plain = answer["states"], life["patched"][f"{model}/off"]
            counted = answer["counters"]
            images = answer.get("image_counters")
            rows.append([
                name, model, drafter, ids(states["layer_ids"]),
                f"{counted['accepted_tokens']} of {counted['drafts']}",
                "equal" if answer["tokens"] == plain["tokens"] else "DIFFER",
                max(states["difference"].values()),
                f"{max(answer['reference'].values()):.1e}",
                f"{images['accepted_tokens']} of {images['drafts']}" if images else "",
            ])  # fmt: skip
    head = ["vLLM", "model", "drafter", "layer ids", "accepted", "tokens", "stream", "reference",
            "with an image, accepted"]  # fmt: skip
    return table(head, rows)


def gates(results):
    rows = []
    for name, life in of("life", results):
        if "stock" in life:
            rows.append([name, "(stock)", error(life["stock"]["kimi_k25/shared"])])
            for gate, answers in results[f"half_open {name}"].items():
                opened = jobs.CLOSED[name][: jobs.CLOSED[name].index(gate)]
                rows.append([name, ", ".join(opened), error(answers["kimi_k25/shared"])])
    return table(["vLLM", "opened", "Kimi-K2.5 then ends with"], rows)


def error(answer):
    lines = answer["error"].splitlines()
    text = next((line for line in lines if "only supported for" in line), lines[0]).strip()
    text = re.sub(r"\[(?=').*?\]", "[…]", text).split(" [type=")[0]
    return f"`{text}`"


def off(results):
    rows = []
    for name, life in of("life", results):
        if "stock" not in life:
            continue
        same = [
            life["stock"][f"{model}/off"]["logits"] == life["patched"][f"{model}/off"]["logits"]
            for model in jobs.MODELS
        ]
        back = life["reverted"]["kimi_k25/shared"]["error"]
        rows.append([
            name,
            "bit-equal" if all(same) else "DIFFER",
            "the stock error" if back == life["stock"]["kimi_k25/shared"]["error"] else "DIFFERS",
        ])  # fmt: skip
    return table(["vLLM", "logits, patched and stock, all three models", "after revert"], rows)


def others(results):
    rows = []
    for name, life in of("life", results):
        for scenario, answer in life["patched"].items():
            if scenario.endswith("/extract"):
                worst = max(answer["reference"].values())
                text = f"layers {ids(answer['reference'])}; reference {worst:.1e}"
                rows.append([name, scenario.split("/")[0], "`extract_hidden_states`", text])
    for name, answers in of("compiled", results):
        for scenario, answer in answers.items():
            counted, worst = answer["counters"], max(answer["reference"].values())
            text = (
                f"tokens equal to eager; {counted['accepted_tokens']} of {counted['drafts']} "
                f"accepted; reference {worst:.1e}; {answer['graphs']} graphs"
            )
            rows.append([name, scenario.split("/")[0], "`torch.compile`", text])
    return table(["vLLM", "model", "what", "figures"], rows)


def mutations(results):
    rows = []
    for name, answers in of("mutated", results):
        for drafter in ("own", "default"):
            answer = answers[f"deepseek_v3/{drafter}"]
            same = answer["tokens"] == answers["deepseek_v3/off"]["tokens"]
            counted = answer["counters"]
            rows.append([
                name, ids(answer["states"]["layer_ids"]), "equal" if same else "differ",
                f"{counted['accepted_tokens']} of {counted['drafts']}",
                f"{max(answer['states']['difference'].values()):.2f}",
                f"{max(answer['reference'].values()):.1e}",
            ])  # fmt: skip
    return table(["mistake", "layer ids", "tokens", "accepted", "stream", "reference"], rows)


def zoo(results):
    rows = [
        [name, f["shape"], f["reference"], f"{f['difference']:.1e}",
         f"{f['accepted']} of {f['drafts']}", "equal" if f["lossless"] else "DIFFER"]
        for name, f in zoo_jobs.figures(results).items()
    ]  # fmt: skip
    head = ["architecture", "shape", "reference", "difference", "accepted", "tokens"]
    return table(head, rows)


def naive(results):
    rows = [
        [name, architecture, "equal" if answer["lossless"] else "differ",
         f"{max(*answer['reference'].values(), *answer['few'].values()):.1f}"]
        for name, answers in of("naive", results) for architecture, answer in answers.items()
    ]  # fmt: skip
    return table(["mistake", "architecture", "tokens", "reference"], rows)


def of(kind, results):
    for name, result in results.items():
        if name.split(" ", 1)[0] == kind:
            yield name.split(" ", 1)[1], result


def text(found):
    """The whole report, from what `conftest` keeps of a run."""
    results = dict(sorted(found["results"].items()))
    parts = [
        HEAD.format(prompts=8, tokens=64),
        "## Speculation after `apply`\n",
        "0.32.0 is native: `apply` leaves it as it is, and the same checks hold.\n",
        speculation(results),
        "## The gates, opened one at a time\n",
        gates(results),
        "## Off, and reverted\n",
        off(results),
        "## Compiled, and collecting states\n",
        others(results),
        f"## Mistakes put into the patch of {jobs.MUTATED} on purpose\n",
        "Each fails the checks on the states. None changes a token.\n",
        mutations(results),
        f"## Other architectures, on {zoo_jobs.zoo.VERSION}\n",
        ZOO,
        zoo(results),
        "With a mistake put in on purpose:\n",
        naive(results),
        gpu_report.section(json.loads(gpu_report.KEPT.read_text())),
    ]
    return "\n".join(parts)


def main():
    kept = environments.cache() / "results.json"
    if not kept.exists():
        sys.exit("no results of a green run: run `make engine` first")
    found = json.loads(kept.read_text())
    report, figures = text(found), zoo_jobs.figures(found["results"])
    if len(sys.argv) > 1:
        page = Path(sys.argv[1])
        page.write_text(report)
        if set(figures) == set(zoo_jobs.ZOO):  # of the long run
            data = page.parent / "supported" / f"engine-{zoo_jobs.zoo.VERSION}.json"
            data.parent.mkdir(exist_ok=True)
            data.write_text(json.dumps(figures, indent=1) + "\n")
    print(report)


if __name__ == "__main__":
    main()
