"""Boots the zoo's models one after the other in one process; request on stdin, answers in a file.

    python zoo_child.py ANSWERS.json < REQUEST.json

The request: {"models": folder, "architectures": [names]}. Each is booted twice, without a drafter
and with one that is given the state of every layer; the answer is figures, or what went wrong.
"""

import gc
import json
import os
import sys
import time
import traceback
from pathlib import Path

import child
import cpu_rollback
import observe
import zoo
import zoo_weights

ZOO = zoo.everything()
TOKENS = 24  # generated after each prompt
DRAFTED = 3
FEW = (2, 5)  # layer ids
OPTIONS = {
    **child.ENGINE, **child.EAGER, "max_model_len": 128, "max_num_batched_tokens": 256,
    "skip_tokenizer_init": True, "num_gpu_blocks_override": 64,
}  # fmt: skip


def be_quick():
    """A boot in two seconds instead of ten; nothing of it touches what is computed.

    vLLM looks at each model class in a process of its own, which imports everything again; small
    functions are compiled for their own sake; the collector walks all that was ever imported.
    """
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()
    gc.freeze()


def engine(folder, animal, drafting):
    from vllm import LLM

    options = dict(OPTIONS, model=str(folder / "model"))
    if animal.multimodal:
        options["language_model_only"] = True
    if animal.hf is None:
        options["load_format"] = "dummy"
    if drafting:
        options["speculative_config"] = {
            "method": "eagle3",
            "model": str(folder / "drafter"),
            "num_speculative_tokens": DRAFTED,
        }
    return LLM(**options)


def runner_of(llm):
    """The model runner, which lies in this process."""
    executor = llm.llm_engine.engine_core.engine_core.model_executor
    return executor.driver_worker.worker.model_runner


def fill_in_place():
    """Weights without a checkpoint: ours, where vLLM's dummy loader has near zeros."""
    from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

    def load_weights(loader, model, config):
        for name, tensor in model.named_parameters():
            tensor.data.fill_(float("norm" in name.lower() and name.endswith("weight")))
            zoo_weights.randomise([(name, tensor.data)])
        for name, tensor in model.named_parameters():
            if name.endswith(("lm_head.weight", "output.weight", "output_layer.weight")):
                zoo_weights.be_loud(tensor.data)

    DummyModelLoader.load_weights = load_weights


class Received:
    """What the runner gets from the model beside the hidden states, of the last forward.

    The drafter is given as many states as it was built for, however few are captured.
    """

    def __init__(self, model, count):
        self.states, self.count = None, count
        model.register_forward_hook(self._output)

    def _output(self, model, args, output):
        hidden, states = output
        self.states = [s.clone() for s in states]
        return hidden, [*states, *states[:1] * (self.count - len(states))]


def generate(llm, prompts, tokens):
    inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
    outputs, counters = child.generate(llm, inputs, tokens)
    return [list(o.outputs[0].token_ids) for o in outputs], counters


def shared(runner):
    """Whether the drafter reads the target's own embedding and head."""
    target = runner.model
    language = target.get_language_model() if hasattr(target, "get_language_model") else target
    drafter = runner.drafter.model
    ours = {id(p) for p in target.parameters()}
    return {
        "embed_tokens": id(drafter.model.embed_tokens.weight) in ours,
        "lm_head": id(drafter.lm_head.weight) in ours,
        "default_layer_ids": list(target.get_eagle3_default_aux_hidden_state_layers()),
        "language": type(language).__name__,
    }


def run(folder, animal, facts):
    llm = engine(folder, animal, drafting=False)
    plain, _ = generate(llm, facts["prompts"], TOKENS)
    del llm
    child.clean_up()

    llm = engine(folder, animal, drafting=True)
    runner = runner_of(llm)
    received = Received(runner.model, len(animal.layer_ids))
    if animal.hf is None:
        expected = observe.FirstNorms(runner.model, zoo.LAYERS)
    tokens, counted = generate(llm, facts["prompts"], TOKENS)
    answer = {"counters": counted, **shared(runner)}
    answer["layer_ids"] = list(animal.layer_ids)
    answer["tokens"], answer["lossless"] = sum(map(len, tokens)), tokens == plain
    generate(llm, [facts["tokens"]], 1)
    states = expected.states if animal.hf is None else reference(folder)
    answer["captured"] = len(received.states)
    answer["reference"] = compared(animal.layer_ids, received.states, states, len(facts["tokens"]))
    # with every layer asked for, it would not show if their ids were counted from another one
    runner.model.set_aux_hidden_state_layers(FEW)
    generate(llm, [facts["tokens"]], 1)
    answer["few"] = compared(FEW, received.states, states, len(facts["tokens"]))
    answer["apart"] = min(
        observe.relative(states[k][: len(facts["tokens"])], states[k + 1][: len(facts["tokens"])])
        for k in range(zoo.LAYERS)
    )
    return answer


def reference(folder):
    from safetensors.torch import load_file

    return {int(k): state for k, state in load_file(folder / "states.safetensors").items()}


def compared(layer_ids, found, expected, length):
    """Relative difference of each received state from the reference, by layer id."""
    pairs = zip(layer_ids, found, strict=True)
    return {k: observe.relative(state[:length], expected[k][:length]) for k, state in pairs}


def main():
    request = json.load(sys.stdin)
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # read when torch is imported
    import vllm

    be_quick()
    sys.path.append(str(Path(__file__).parent / "standins"))
    import no_torchvision

    no_torchvision.install(told=True)
    fill_in_place()
    cpu_rollback.install()
    root = Path(request["models"])
    facts = json.loads((root / "zoo.json").read_text())
    answers = {"vllm": vllm.__version__, "source": vllm.__file__, "architectures": {}}
    for name in request["architectures"]:
        started = time.time()
        try:
            answer = run(root / name, ZOO[name], facts)
        except Exception as error:  # the error is the answer
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        answer["seconds"] = round(time.time() - started, 1)
        answers["architectures"][name] = answer
        Path(sys.argv[1]).write_text(json.dumps(answers))
        child.clean_up()


if __name__ == "__main__":
    main()
