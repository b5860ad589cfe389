"""The comparisons of the proof on a GPU, made where there is no vLLM."""

import gpu_models
from safetensors.torch import load_file


def tokens(reference, plain, drafted):
    """How many prompts are continued alike; where not, how close the two best words were."""
    gaps = []
    for prompt, one, other in zip(gpu_models.PROMPTS, plain, drafted, strict=True):
        if one != other:
            at = next(n for n, (a, b) in enumerate(zip(one, other, strict=True)) if a != b)
            _, logits = reference(prompt + one[:at])
            best = logits[-1].topk(2).values
            gaps.append({"at": at, "gap": (best[0] - best[1]).item(), "best": best[0].item()})
    return {"equal": len(plain) - len(gaps), "of": len(plain), "gaps": gaps}


def states(reference, probed, path):
    """Largest relative difference of what the drafter was given, by layer id."""
    words = gpu_models.PROBE + probed
    expected, _ = reference(words)
    scale = expected.abs().amax(dim=(1, 2))
    kept, count = load_file(path), len(gpu_models.LAYER_IDS)
    worst = {"prefill": [0.0] * count, "decode": [0.0] * count}
    rows = {"prefill": 0, "decode": 0}
    for step in sorted({int(key.split(".")[0]) for key in kept}):
        given, positions = kept[f"{step}.words"].tolist(), kept[f"{step}.positions"].tolist()
        kind = "prefill" if positions[0] == 0 else "decode"
        found = kept[f"{step}.states"].unflatten(1, (count, -1))
        for row, (word, position) in enumerate(zip(given, positions, strict=True)):
            if position >= len(words) or words[position] != word:
                break  # a draft that was not taken; nor is what follows it
            errors = (found[row] - expected[:, position]).abs().amax(-1) / scale
            pairs = zip(worst[kind], errors.tolist(), strict=True)
            worst[kind] = [max(a, b) for a, b in pairs]
            rows[kind] += 1
    return {"worst": worst, "rows": rows}


def graphs(stock, opened):
    """Lines, and those that differ; notes on the place in the source file are no code."""
    one, other = ([line for line in text.splitlines() if not line.lstrip().startswith("# File:")]
                  for text in (stock, opened))  # fmt: skip
    unequal = sum(a != b for a, b in zip(one, other, strict=False)) + abs(len(one) - len(other))
    return {"lines": len(one), "differ": unequal}
