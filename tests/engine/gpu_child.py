"""Boots one target in one mode, without and with its drafter; request on stdin, answers in a file.

    python gpu_child.py ANSWERS.json < REQUEST.json

The request: {"mode": "eager" | "graphs", "runner": 1 | 2, "models": folder, "target": name,
"boots": ["plain", "drafted"], "graph": file for the Dynamo graph, "states": file for what the
drafter is given, "options": more for the engine}. The model runner of vLLM is chosen by the
environment, before this starts.
"""

import contextlib
import gc
import inspect
import json
import sys
import time
import traceback
from pathlib import Path

TOKENS, PROBED, DRAFTED = 48, 24, 3
ENGINE = {
    "dtype": "float32", "seed": 0, "max_model_len": 256, "max_num_seqs": 8,
    "max_num_batched_tokens": 256, "enable_prefix_caching": False, "disable_log_stats": False,
    "skip_tokenizer_init": True,
}  # fmt: skip
MODES = {
    "eager": {"enforce_eager": True},
    "graphs": {"compilation_config": {"cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32]}},
}


def boot(request, drafting):
    from vllm import LLM

    folder = Path(request["models"]) / request["target"]
    options = {**ENGINE, **MODES[request["mode"]], **request["options"]}
    options["model"] = str(folder / "model")
    if request["wrapper"]:
        options["language_model_only"] = True
    if drafting:
        options["speculative_config"] = {
            "method": "eagle3", "model": str(folder / "drafter"),
            "num_speculative_tokens": DRAFTED,
        }  # fmt: skip
    return LLM(**options)


def runner_of(llm):
    """The model runner, which lies in this process."""
    executor = llm.llm_engine.engine_core.engine_core.model_executor
    return executor.driver_worker.worker.model_runner


def unwrapped(model):
    """The model itself: under CUDA graphs the runner may hold a wrapper."""
    return model.unwrap() if hasattr(model, "unwrap") else model


def decoder_of(model):
    language = getattr(model, "language_model", model)
    return language.model


class Entries:
    """In eager mode: the stream on entry to each layer, against what the model returns."""

    def __init__(self, model, whole):
        """`whole`: a layer's `hidden_states` is the whole stream, its `residual` stale."""
        self.whole, self.stream, self.worst, self.forwards = whole, {}, {}, 0
        decoder = decoder_of(model)
        self.ids = tuple(decoder.aux_hidden_state_layers)
        for index, layer in enumerate(decoder.layers):
            layer.register_forward_pre_hook(self._entry(index), with_kwargs=True)
        decoder.norm.register_forward_pre_hook(
            lambda norm, args: self._record(len(decoder.layers), *args)
        )
        model.register_forward_hook(self._output)

    def _entry(self, index):
        def hook(layer, args, kwargs):
            given = inspect.signature(layer.forward).bind(*args, **kwargs).arguments
            self._record(index, given["hidden_states"], given["residual"])

        return hook

    def _record(self, index, hidden, residual):
        alone = self.whole or residual is None
        self.stream[index] = hidden.clone() if alone else hidden + residual

    def _output(self, model, args, output):
        stream, self.stream = self.stream, {}
        assert len(output[1]) == len(self.ids)
        for layer_id, state in zip(self.ids, output[1], strict=True):
            expected = stream[layer_id]
            error = ((state - expected).abs().max() / expected.abs().max()).item()
            self.worst[layer_id] = max(self.worst.get(layer_id, 0.0), error)
        self.forwards += 1

    def figures(self):
        return {"forwards": self.forwards, "worst": self.worst}


class Given:
    """What the drafter is given on each step: words, their positions, and all states in a row."""

    def __init__(self, runner):
        self.steps = None
        holder = runner.drafter if hasattr(runner, "drafter") else runner.speculator
        # model runner 2 hands over its batch, 1 the tensors themselves
        self.batched = "input_batch" in inspect.signature(holder.propose).parameters
        self.propose, holder.propose = holder.propose, self._propose

    def _propose(self, *args, **kwargs):
        if self.steps is not None:
            given = inspect.signature(self.propose).bind(*args, **kwargs).arguments
            if self.batched:
                batch = given["input_batch"]
                import torch

                states = torch.cat(given["aux_hidden_states"], dim=-1)
                self._keep(batch.num_tokens, batch.input_ids, batch.positions, states)
            else:
                states = given["target_hidden_states"]
                words, positions = given["target_token_ids"], given["target_positions"]
                self._keep(len(words), words, positions, states)
        return self.propose(*args, **kwargs)

    def _keep(self, count, *tensors):
        self.steps.append([tensor[:count].cpu().clone() for tensor in tensors])

    def save(self, path):
        from safetensors.torch import save_file

        names = ("words", "positions", "states")
        save_file(
            {
                f"{n}.{name}": tensor.contiguous()
                for n, step in enumerate(self.steps)
                for name, tensor in zip(names, step, strict=True)
            },
            path,
        )


def counters(llm):
    names = {"drafts", "draft_tokens", "accepted_tokens"}
    found = {m.name.split("spec_decode_num_")[-1]: m for m in llm.get_metrics()}
    return {name: found[name].value for name in names if name in found}


def generate(llm, prompts, tokens):
    from vllm import SamplingParams

    sampling = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, detokenize=False)
    inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
    outputs = llm.generate(inputs, sampling, use_tqdm=False)
    return [list(o.outputs[0].token_ids) for o in outputs]


def run(request, name):
    started = time.time()
    watched = name == "plain" and request["mode"] == "graphs"
    with kept_graphs(Path(request["graph"])) if watched else contextlib.nullcontext():
        llm = boot(request, name == "drafted")
    answer = {"init_seconds": round(time.time() - started, 1)}
    runner = runner_of(llm)
    answer["runner"] = f"{type(runner).__module__}.{type(runner).__qualname__}"
    entries = given = None
    if name == "drafted":
        given = Given(runner)
        if request["mode"] == "eager":
            entries = Entries(unwrapped(runner.model), request["stream"] == "hidden")
    before = counters(llm)
    answer["tokens"] = generate(llm, request["prompts"], TOKENS)
    answer["counters"] = {k: v - before.get(k, 0) for k, v in counters(llm).items()}
    if given:
        given.steps = []
        answer["probed"] = generate(llm, [request["probe"]], PROBED)[0]
        given.save(request["states"])
    if entries:
        answer["entry"] = entries.figures()
    if request["mode"] == "graphs":
        answer["graphs"] = graph_counts(llm)
    return answer


def graph_counts(llm):
    """What was compiled and captured, as vLLM itself counts."""
    from vllm.compilation.counter import compilation_counter

    mode = llm.llm_engine.vllm_config.compilation_config.cudagraph_mode
    counted = vars(compilation_counter)
    return {"mode": str(mode), **{k: v for k, v in counted.items() if v}}


@contextlib.contextmanager
def kept_graphs(path):
    """Writes each graph that Dynamo hands to vLLM's backend meanwhile, as code."""
    from vllm.compilation.backends import VllmBackend

    original = VllmBackend.__call__

    def call(self, graph, example_inputs):
        with path.open("a") as file:
            file.write(graph.print_readable(print_output=False) + "\n")
        return original(self, graph, example_inputs)

    VllmBackend.__call__ = call
    try:
        yield
    finally:
        VllmBackend.__call__ = original


def clean_up():
    """Leave nothing of this engine to the next one in the process."""
    from vllm.distributed import cleanup_dist_env_and_memory

    gc.collect()
    cleanup_dist_env_and_memory()
    gc.collect()


def main():
    request = json.load(sys.stdin)
    import torch
    import vllm
    from vllm.model_executor.models import registry

    # vLLM looks at each model class in a process of its own, which imports everything again
    registry._run_in_subprocess = lambda function: function()
    answers = {"vllm": vllm.__version__, "torch": torch.__version__, "source": vllm.__file__}
    if torch.cuda.is_available():
        answers["device"] = torch.cuda.get_device_name()
    answers["boots"] = {}
    for name in request["boots"]:
        started = time.time()
        try:
            answer = run(request, name)
        except Exception as error:  # the error is the answer
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        answer["seconds"] = round(time.time() - started, 1)
        answers["boots"][name] = answer
        Path(sys.argv[1]).write_text(json.dumps(answers))
        clean_up()


if __name__ == "__main__":
    main()
