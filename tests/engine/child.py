"""Runs scenarios in one process of an engine environment: request on stdin, answers in a file.

    python child.py ANSWERS.json < REQUEST.json

The request: {"models": folder, "shim": bool, "scenarios": [{...}]}. A scenario names a `model`,
perhaps a `drafter`, and what to do; its answer is figures, or the error that ended it.
"""

import gc
import json
import sys
import tempfile
import time
import traceback
from pathlib import Path

import models

GREEDY = {"temperature": 0, "ignore_eos": True}
ENGINE = {
    "dtype": "float32", "seed": 0, "max_model_len": 256, "max_num_seqs": 8,
    "max_num_batched_tokens": 512, "enable_prefix_caching": False, "disable_log_stats": False,
    "trust_remote_code": True,
    # enough for 8 requests; an engine's cache outlives it, and a process holds a dozen engines
    "num_gpu_blocks_override": 32,
}  # fmt: skip
# The CPU kernel for rotary embedding ignores the strides of its arguments, which DeepSeek's
# attention without MLA relies on; the native implementation is used instead.
EAGER = {"enforce_eager": True, "compilation_config": {"custom_ops": ["all", "-rotary_embedding"]}}
COMPILED = {"enforce_eager": False, "compilation_config": {"custom_ops": ["none"]}}


def image_prompt():
    from PIL import Image

    picture = Image.linear_gradient("L").convert("RGB").resize((70, 42))
    tokens = [7, 8, *(models.SPECIALS[name] for name in models.PLACEHOLDER), 9, 10, 11]
    chunk = {"type": "image", "image": picture, "uuid": None}
    return {"prompt_token_ids": tokens, "multi_modal_data": {"vision_chunk": [chunk]}}


def engine(root, scenario):
    from vllm import LLM

    options = dict(ENGINE, model=str(root / scenario["model"]))
    options.update(COMPILED if scenario.get("compile") else EAGER)
    if scenario.get("drafter"):
        options["speculative_config"] = {
            "method": "eagle3",
            "model": str(root / scenario["drafter"]),
            "num_speculative_tokens": 3,
        }
    if scenario.get("extract"):
        options.update(extraction(root / scenario["model"], scenario["extract"]))
    if scenario["model"] == "kimi_k25" and not scenario.get("image"):
        options["limit_mm_per_prompt"] = {"vision_chunk": 0}
    return LLM(**options)


def extraction(checkpoint, layer_ids):
    """Options for the method that writes the captured states to files.

    0.17 loses the text config of a composite config here (mended in later versions); its fields
    given on the top level do the same.
    """
    text = json.loads((checkpoint / "config.json").read_text()).get("text_config", {})
    overrides = {**text, "text_config": None} if text else {}
    return {
        "speculative_config": {
            "method": "extract_hidden_states",
            "num_speculative_tokens": 1,
            "draft_model_config": {
                "hf_config": {**overrides, "eagle_aux_hidden_state_layer_ids": layer_ids}
            },
        },
        "kv_transfer_config": {
            "kv_connector": "ExampleHiddenStatesConnector",
            "kv_role": "kv_producer",
            "kv_connector_extra_config": {"shared_storage_path": tempfile.mkdtemp(dir=Path.cwd())},
        },
    }


def counters(llm):
    names = {"drafts", "draft_tokens", "accepted_tokens"}
    found = {m.name.split("spec_decode_num_")[-1]: m for m in llm.get_metrics()}
    return {name: found[name].value for name in names if name in found}


def generate(llm, inputs, tokens):
    from vllm import SamplingParams

    before = counters(llm)
    outputs = llm.generate(inputs, SamplingParams(max_tokens=tokens, **GREEDY), use_tqdm=False)
    after = counters(llm)
    return outputs, {name: after[name] - before.get(name, 0) for name in after}


def run(root, scenario):
    import observe

    answer, llm, hold = {}, engine(root, scenario), {}
    facts = json.loads((root / "reference.json").read_text())
    if scenario.get("observe"):
        compiled = bool(scenario.get("compile"))
        llm.apply_model(lambda m: hold.update(states=observe.StateObserver(m, compiled)))
    if scenario.get("digest"):
        llm.apply_model(lambda m: hold.update(logits=observe.LogitsDigest(m)))

    texts = [{"prompt_token_ids": p} for p in facts["prompts"]]
    outputs, answer["counters"] = generate(llm, texts, scenario.get("tokens", 64))
    answer["tokens"] = [list(o.outputs[0].token_ids) for o in outputs]
    if scenario.get("image"):
        outputs, answer["image_counters"] = generate(llm, [image_prompt()], 32)
        answer["image_prompt_tokens"] = len(outputs[0].prompt_token_ids)
        answer["image_tokens"] = list(outputs[0].outputs[0].token_ids)
    if "states" in hold or scenario.get("extract"):
        answer["reference"] = against_reference(root, facts, scenario, llm, hold.get("states"))
    if "states" in hold:
        answer["states"] = hold["states"].figures()
    if "logits" in hold:
        answer["logits"] = hold["logits"].hash.hexdigest()
    if scenario.get("compile"):
        from torch._dynamo.utils import counters as dynamo

        answer["graphs"] = dynamo["stats"]["unique_graphs"]
    return answer


def against_reference(root, facts, scenario, llm, states):
    """Relative difference of the captured states, by layer id, for one prompt of 29 tokens."""
    import observe
    from safetensors.torch import load_file

    prompt, expected = facts["tokens"], load_file(root / "states.safetensors")
    outputs, _ = generate(llm, [{"prompt_token_ids": prompt}], 1)
    if scenario.get("extract"):
        saved = load_file(outputs[0].kv_transfer_params["hidden_states_path"])
        assert saved["token_ids"].tolist() == prompt, "states of other tokens were saved"
        found = dict(zip(scenario["extract"], saved["hidden_states"].unbind(1), strict=True))
    else:
        found = {layer_id: state[: len(prompt)] for layer_id, state in states.last.items()}
    return {k: observe.relative(state, expected[str(k)]) for k, state in found.items()}


def clean_up():
    """Leave nothing of this engine to the next one in the process."""
    from vllm.distributed import cleanup_dist_env_and_memory, kv_transfer

    gc.collect()
    getattr(kv_transfer, "ensure_kv_transfer_shutdown", lambda: None)()
    cleanup_dist_env_and_memory()
    gc.collect()


def main():
    request = json.load(sys.stdin)
    import torch
    import vllm

    answers = {"vllm": vllm.__version__, "torch": torch.__version__, "source": vllm.__file__}
    answers["scenarios"] = {}
    if request["shim"]:
        import cpu_shim

        cpu_shim.install()
    for scenario in request["scenarios"]:
        started = time.time()
        try:
            answer = run(Path(request["models"]), scenario)
        except Exception as error:  # the error is the answer
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        answer["seconds"] = round(time.time() - started, 1)
        answers["scenarios"][scenario["name"]] = answer
        Path(sys.argv[1]).write_text(json.dumps(answers))
        clean_up()


if __name__ == "__main__":
    main()
