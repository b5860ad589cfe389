"""An error for each row of the signature table, written out as it would be printed."""

from __future__ import annotations

import re

from explain.logs import Error, Frame
from vllm_eagle3_patches.explain.signatures import ROOT, WRAPPER, Signature, table

VALUES = {
    "model_type": "kimi_k2",
    "list": "['llama', 'qwen', 'minicpm', 'gpt_oss']",
    "arch": "['Eagle3KimiForCausalLM']",
    "which": "k",
    "repo": "lightseekorg/kimi-k2.5-eagle3",
    "file": "config.json",
    "name": "'fc.bias'",
    "model": "LlamaForCausalLM",
    "names": "{'model.fc.weight'}",
    "config": "KimiK25Config",
    "attribute": "model",
    "owner": "DeepseekV2Model",
    "method": "eagle3",
    "problem": "too many values",
    "expected": "3",
    "got": "4096",
    "wanted": "12288",
    "layers": "(2, 30, 70)",
    "range": "0..61",
    "rule": "be unique and strictly increasing.",
    "rows": "16384",
    "out": "4096",
    "drafter": "1024",
    "target": "2048",
    "one": "1024",
    "other": "2048",
    "size": "2",
    "heads": "33",
    "layer": "linear",
    "argument": "fp8",
    "side": "input_size_per_partition",
    "block": "min_thread_k",
    "unit": "128",
    "dtype": "torch.float16",
    "keys": "['group_size']",
    "scale": "weight_scale",
    "backend": "FLASHINFER_MLA",
    "device": "CUDA",
    "platform": "NVIDIA CUDA",
    "sizes": "16",
    "kind": "eagle",
    "length": "262144",
    "needed": "9.12",
    "available": "3.40",
    "what": "",
    "layout": "LBNHC",
    "asked": "8192",
    "limit": "2048",
    "index": "tmp10",
    "tokens": "2048",
    "n_predict": "4",
    "how": "",
    "plural": "",
    "hub": "https://huggingface.co",
    "url": "https://huggingface.co/api/models/meta-llama/Llama-3.1-8B",
    "path": "/models/draft",
    "process": "EngineCore_DP0",
    "signal": "9",
    "address": "('0.0.0.0', 8000)",
    "reason": "['non-MLA not supported']",
    "algorithm": "Eagle3",
    "code": "1",
    "pid": "12",
    "cause": "something else",
    "start": "0",
    "shell": "",
    "command": "",
}
# Where one name stands for different things in different rows.
ROW_VALUES = {
    "target-unregistered": {"arch": "['KimiK25ForConditionalGeneration']"},
    "drafter-unregistered-config": {"arch": "['LlamaForCausalLM4']"},
    "drafter-remote-code": {"file": "configuration_deepseek.py"},
    "weight-name": {"name": "'visual.x'"},
    "image-token-other": {"attribute": "image_token_id"},
    "interface-method": {"method": "set_aux_hidden_state_layers"},
    "interface-inner": {"model": "<class 'MistralForCausalLM'>"},
    "quant-mismatch": {"config": "fp8"},
    "quant-unknown": {"method": "nvfp9"},
    "quant-shards": {"layer": "qkv_proj"},
    "non-causal": {"layer": "model.layers.61.self_attn"},
    "argparse": {"problem": "unrecognized arguments: --speculative-model x"},
    "cuda-error": {"problem": "no kernel image is available for execution on the device"},
    "hub-gated": {"which": ""},
    "pydantic": {"config": "SpeculativeConfig\nfoo\n  Unexpected keyword argument [type=x]"},
    "aux-count": {"got": "2"},
    "told-to-stop": {"signal": "SIGTERM"},
    "terminated": {"what": "c10::DistBackendError"},
}
CODES = {
    "drafter-isinstance-list": "assert isinstance(",
}
LOAD = Frame("vllm/v1/spec_decode/eagle.py", "load_model", "target_language_model = x")
PROPOSE = Frame("vllm/v1/spec_decode/eagle.py", "propose", "self.hidden_states[:n] = target")
MODEL = Frame("vllm/model_executor/models/llama_eagle3.py", "__init__", "super().__init__(")
WEIGHTS = Frame("vllm/model_executor/models/llama_eagle3.py", "load_weights", "weight_loader(p, w)")
LAYER = Frame("vllm/model_executor/layers/linear.py", "weight_loader_v2", "param.load(w)")
OTHER = Frame("vllm/v1/worker/gpu_worker.py", "load_model", "self.model_runner.load_model()")
FRAMES = {
    "drafter-isinstance-list": [PROPOSE],
    "drafter-weight-name": [WEIGHTS],
    "drafter-uninitialised": [LOAD],
    "drafter-forward": [PROPOSE],
    "image-token-other": [LOAD],
    "bare-decoder": [LOAD],
    "fc-shape": [
        Frame("vllm/model_executor/models/llama_eagle3.py", "combine_hidden_states", "self.fc(h)")
    ],
    "drafter-unregistered-config": [
        Frame("vllm/engine/arg_utils.py", "create_speculative_config", "return SpeculativeConfig(")
    ],
    "fc-shape-cpu": [
        Frame("vllm/model_executor/models/llama_eagle3.py", "combine_hidden_states", "self.fc(h)")
    ],
    "drafter-weight-size": [WEIGHTS],
    "drafter-vocabulary-size": [WEIGHTS],
    "drafter-weight-shape": [WEIGHTS],
    "drafter-shard-shape": [WEIGHTS],
    "drafter-narrow": [WEIGHTS],
    "narrow": [LAYER],
    "drafter-buffer": [PROPOSE],
    "drafter-sizes": [PROPOSE],
    "draft-tp-heads": [
        Frame("vllm/config/speculative.py", "_verify_args", "self.draft_model_config")
    ],
    "drafter-qkv-cut": [MODEL],
}
EXCEPTIONS = {
    "quant-scale": "KeyError",
    "file-not-found": "FileNotFoundError",
    "compile": "torch._dynamo.exc.Unsupported",
    "oom": "torch.OutOfMemoryError",
    "repo-id": "huggingface_hub.errors.HFValidationError",
    "pydantic": "pydantic_core._pydantic_core.ValidationError",
}  # fmt: skip
# Not a matter of one exception: tested by themselves.
CUT = {"drafter-qkv-cut", "backend-mla-cut"}


def filled(signature: Signature) -> str:
    values = {**VALUES, **ROW_VALUES.get(signature.id, {})}
    text = signature.text
    if signature.id == "quant-scale":
        text = f"'layers.0.mlp.gate_up_proj{text}"
    if signature.id == "drafter-qk-norm":
        text = f"'layers.0.{text}'"
    if signature.id == "drafter-embeddings":
        text = f"'{text}'"
    return re.sub(r"\{(\w+)\}", lambda found: values[found[1]], text)


def error(signature: Signature) -> Error:
    exception = EXCEPTIONS.get(signature.id) or signature.exception.split("|")[0] or "RuntimeError"
    frames = [OTHER, *FRAMES.get(signature.id, [])]
    if signature.code:
        last = frames[-1]
        frames[-1] = Frame(last.path, last.function, CODES.get(signature.id, signature.code))
    message = filled(signature) or ("" if signature.code else "what torch says of it")
    return Error(exception, message, frames)


def rows() -> list[Signature]:
    """The rows that name a cause."""
    return [row for row in table() if row.strength != WRAPPER and row.id not in CUT]


def typical() -> dict[str, Error]:
    """One error for each class, of the kind whose own line is enough to tell."""
    found: dict[str, Error] = {}
    for row in rows():
        plain = not (row.code or row.only_in) and row.strength == ROOT
        if plain and row.kind is not None and row.id not in ("drafter-remote-code",):
            found.setdefault(row.kind, error(row))
    return found
