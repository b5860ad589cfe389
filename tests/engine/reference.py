"""Makes the tiny checkpoints and, with transformers alone, the states they must produce.

    python reference.py FOLDER

Runs in an engine environment, in a process without vLLM: the reference must owe nothing to it.
"""

import json
import sys
from pathlib import Path

import models
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, __version__


def prompts(count):
    """Runs of counting, with jumps, of different lengths."""
    return [
        [(29 * n + step + 11 * (step // 4)) % models.WORDS for step in range(5 + 3 * n)]
        for n in range(count)
    ]


def states(checkpoint, tokens):
    """The residual stream on entry to each layer, and after the last one.

    For layer k < L this is `hidden_states[k]` itself; transformers applies the final norm to its
    last entry, so the stream after the last layer is taken in front of that norm.
    """
    config = AutoConfig.from_pretrained(checkpoint)
    model = AutoModelForCausalLM.from_pretrained(checkpoint, config=config, dtype=torch.float32)
    final = []
    model.model.norm.register_forward_pre_hook(lambda norm, args: final.append(args[0]))
    with torch.no_grad():
        out = model.eval()(torch.tensor([tokens]), output_hidden_states=True)
    return [state[0].clone() for state in (*out.hidden_states[:-1], final[0])]


def main():
    root = Path(sys.argv[1])
    models.build(root)
    tokens = prompts(9)[-1]
    found = states(root / "deepseek_v3", tokens)
    save_file({str(k): state for k, state in enumerate(found)}, root / "states.safetensors")
    facts = {"prompts": prompts(8), "tokens": tokens, "transformers": __version__}
    (root / "reference.json").write_text(json.dumps(facts))


if __name__ == "__main__":
    main()
