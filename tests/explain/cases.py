"""What people reported, reduced to the lines that matter, and the right answer for each.

Where a report has no error text the lines are what that version prints in that situation, as its
source has it. `None` as the class: no error shows in a log, and none must be found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GITHUB = "https://github.com/vllm-project/vllm/"


@dataclass(frozen=True)
class Case:
    url: str
    kind: str | None
    lines: Sequence[str]
    apply: bool = False
    also: str | None = None  # a doubt about a server that is up


ARGUMENTS = (
    "(APIServer pid=1) INFO 06-22 10:00:00 [utils.py:233] non-default args: {'model': "
    "'/data/Kimi-K2.5', 'speculative_config': {'method': 'eagle3', 'model': "
    "'lightseekorg/kimi-k2.5-eagle3', 'num_speculative_tokens': 3}}"
)
UP = "INFO:     Application startup complete."


def metrics(length: str, rate: str, accepted: int, drafted: int) -> str:
    return (
        "(APIServer pid=1) INFO 07-20 10:00:10 [metrics.py:96] SpecDecoding metrics: Mean "
        f"acceptance length: {length}, Accepted throughput: 1.00 tokens/s, Drafted throughput: "
        f"9.00 tokens/s, Accepted: {accepted} tokens, Drafted: {drafted} tokens, Per-position "
        f"acceptance rate: 0.012, 0.002, 0.000, Avg Draft acceptance rate: {rate}%"
    )


def healthy(*lines: str) -> list[str]:
    return [UP, *lines]


CASES = [
    Case(
        GITHUB + "issues/32765",
        "model-type",
        [
            "INFO PyProcess W-162-chat-film-stdout:   Value error, Eagle3 is only supported for "
            "['llama', 'qwen', 'minicpm', 'gpt_oss'] models. Got self.target_model_config."
            "hf_text_config.model_type='gemma3_text' [type=value_error, input_value=ArgsKwargs((), "
            "{'method':..., _api_process_rank=0)}), input_type=ArgsKwargs]"
        ],
        apply=True,
    ),
    Case(
        GITHUB + "pull/37994",
        "model-type",
        [
            "(APIServer pid=7) pydantic_core._pydantic_core.ValidationError: 1 validation error "
            "for SpeculativeConfig",
            "(APIServer pid=7)   Value error, eagle3 is only supported for ['llama', 'qwen', "
            "'minicpm', 'gpt_oss', 'deepseek_v3'] models. Got self.target_model_config."
            "hf_text_config.model_type='minimax_m2' [type=value_error, input_value=ArgsKwargs("
            "(), {'method':..., _api_process_rank=0)}), input_type=ArgsKwargs]",
        ],
        apply=True,
    ),
    Case(
        GITHUB + "pull/42536",
        "model-type",
        [
            "ValueError: dflash is only supported for ['llama', 'qwen', 'laguna'] models. Got "
            "self.target_model_config.hf_text_config.model_type='glm4_moe'"
        ],
        apply=True,
    ),
    Case(
        "Qwen3-Coder-Next-FP8 with a DFlash drafter",
        "interface",
        ["RuntimeError: Model does not support EAGLE3 interface"],
        apply=True,
    ),
    Case(
        GITHUB + "pull/52184",
        "interface",
        ["(EngineCore pid=9) RuntimeError: Model does not support EAGLE3 interface"],
        apply=True,
    ),
    Case(
        GITHUB + "issues/24967",
        "drafter",
        [
            "(EngineCore_DP0 pid=3649085) ERROR 09-17 06:49:42 [core.py:718] ValueError: Model "
            "architectures ['EagleQwen2ForCausalLM'] are not supported for now. Supported "
            "architectures: dict_keys(['ApertusForCausalLM', 'EagleLlamaForCausalLM'])"
        ],
    ),
    Case(
        "a Qwen3 drafter on 0.20.2",
        "drafter",
        [
            "ValidationError: Model architectures ['Eagle3Qwen3ForCausalLM'] are not supported "
            "for now.",
            "Supported architectures: dict_keys(['Eagle3LlamaForCausalLM', "
            "'Eagle3Qwen3vlForCausalLM'])",
        ],
    ),
    Case(GITHUB + "pull/43132", "drafter", ["KeyError: 'layers.0.self_attn.k_norm.weight'"]),
    Case(
        GITHUB + "pull/21086",
        "drafter",
        [
            "OSError: eagle618/eagle-deepseek-r1 does not appear to have a file named "
            "configuration_deepseek.py"
        ],
    ),
    Case(GITHUB + "issues/18906", "aux-shape", ["KeyError: 'embed_tokens.weight'"]),
    Case(
        GITHUB + "issues/18906 (the second error)",
        "aux-shape",
        ["assert hidden_states.shape[-1] == input_embeds.shape[-1]"],
    ),
    Case(
        GITHUB + "pull/28549",
        None,
        healthy(
            "(EngineCore_DP0 pid=9) INFO 11-12 10:00:00 [eagle.py:896] Assuming the EAGLE head "
            "shares the same lm_head with the target model."
        ),
    ),
    Case(
        "DeepSeek-V4 with a vision tower",
        "weight-sharing",
        ["AttributeError: Target model does not have 'model' attribute"],
        apply=True,
    ),
    Case(
        "DeepSeek-V4 with a vision tower (the second error)",
        "image-token",
        ["'DeepseekV4Config' object has no attribute 'image_token_index'"],
        apply=True,
    ),
    Case(
        "https://github.com/ROCm/vllm/pull/1080",
        "image-token",
        [
            "AttributeError: 'MiniCPMVConfig' object has no attribute 'image_token_index'",
            "RuntimeError: Engine core initialization failed.",
        ],
        apply=True,
    ),
    Case("a tool parser that counts tokens", None, healthy()),
    Case(
        GITHUB + "issues/17957",
        "aux-shape",
        [
            "[rank0]: Traceback (most recent call last):",
            '[rank0]:   File "/usr/lib/python3/site-packages/vllm/model_executor/models/'
            'llama_eagle3.py", line 211, in load_weights',
            "[rank0]:     weight_loader(param, loaded_weight, shard_id)",
            '[rank0]:   File "/usr/lib/python3/site-packages/vllm/model_executor/layers/'
            'linear.py", line 1087, in weight_loader',
            "[rank0]:     assert param_data.shape == loaded_weight.shape",
            "[rank0]: AssertionError",
        ],
    ),
    Case(
        GITHUB + "pull/38073",
        "aux-shape",
        [
            '  File "/usr/lib/python3/site-packages/vllm/v1/spec_decode/eagle.py", line 411, in '
            "propose",
            "    self.hidden_states[:num_tokens] = target_hidden_states",
            "RuntimeError: The expanded size of the tensor (1024) must match the existing size "
            "(2048) at non-singleton dimension 1.  Target sizes: [12, 1024].  Tensor sizes: "
            "[12, 2048]",
        ],
    ),
    Case(
        GITHUB + "pull/48259",
        "aux-shape",
        [
            'File "vllm/model_executor/models/llama_eagle3.py", line 379, in combine_hidden_states',
            "    return self.model.fc(hidden_states)",
            "RuntimeError: mat1 and mat2 shapes cannot be multiplied (16384x4096 and 12288x4096)",
        ],
    ),
    Case(
        GITHUB + "pull/50514",
        "pipeline-parallel",
        ["ValueError: EAGLE3 with pipeline parallel is not supported."],
    ),
    Case(
        GITHUB + "pull/50514 (0.24)",
        "pipeline-parallel",
        [
            "(APIServer pid=7)   Value error, Model Runner V2 does not yet support: EAGLE3 with "
            "pipeline parallelism [type=value_error, input_value=ArgsKwargs(()), "
            "input_type=ArgsKwargs]"
        ],
    ),
    Case(
        GITHUB + "pull/50514 (0.30)",
        "pipeline-parallel",
        [
            "(Worker_PP0 pid=7) ERROR 08-21 10:00:00 [multiproc_executor.py:953] ValueError: "
            "MiMoV2FlashForCausalLM does not support dflash with pipeline parallelism"
        ],
    ),
    Case(
        GITHUB + "issues/14117",
        "pipeline-parallel",
        [
            "NotImplementedError: Speculative decoding is currently incompatible with pipeline "
            "parallelism"
        ],
    ),
    Case(
        GITHUB + "issues/25125",
        "unknown",
        [
            "(EngineCore_DP0 pid=2039425) ERROR 09-18 10:17:06 [core.py:712] EngineCore failed to "
            "start."
        ],
    ),
    Case(
        GITHUB + "issues/26328",
        "quantization",
        [
            "(Worker_TP1 pid=530) ERROR 10-06 18:54:30 [v1/executor/multiproc_executor.py:597]   "
            'File "/usr/local/lib/python3.12/dist-packages/vllm/model_executor/models/'
            'llama_eagle3.py", line 34, in __init__',
            "(Worker_TP1 pid=530) ERROR 10-06 18:54:30 [v1/executor/multiproc_executor.py:597]     "
            "super().__init__(vllm_config, prefix=prefix, config=config)",
            "(Worker_TP1 pid=530) ERROR 10-06 18:54:30 [v1/executor/multiproc_executor.py:597]   "
            'File "/usr/local/lib/python3.12/dist-packages/vllm/model_executor/models/llama.py", '
            "line 280, in __init__",
            "(Worker_TP1 pid=530) ERROR 10-06 18:54:30 [v1/executor/multiproc_executor.py:597]     "
            "self.qkv_proj = QKVParallelLinear(",
        ],
    ),
    Case(
        GITHUB + "issues/26328 (its last line, as 0.11.0 has it)",
        "quantization",
        ["NotImplementedError: Mxfp4 linear layer is not implemented"],
    ),
    Case(
        GITHUB + "pull/39126",
        "attention-backend",
        [
            "(APIServer pid=7) INFO 04-13 23:10:00 [utils.py:233] non-default args: {'model': "
            "'nvidia/Kimi-K2.5-NVFP4', 'attention_config': {'backend': 'FLASHINFER_MLA'}}",
            "(Worker_TP0 pid=1765929) ERROR 04-13 23:19:00 [multiproc_executor.py:879]   File "
            '"/home/u/vllm/vllm/model_executor/models/llama_eagle3.py", line 289, in __init__',
            "(Worker_TP0 pid=1765929) ERROR 04-13 23:19:00 [multiproc_executor.py:879]     "
            "self.model = LlamaModel(",
        ],
    ),
    Case(
        GITHUB + "pull/39126 (its last line, as 0.19 has it)",
        "attention-backend",
        [
            "(Worker_TP0 pid=17) ERROR 04-13 23:19:00 [multiproc_executor.py:879] ValueError: "
            "Selected backend AttentionBackendEnum.FLASHINFER_MLA is not valid for this "
            "configuration. Reason: ['non-MLA not supported']"
        ],
    ),
    Case(
        GITHUB + "issues/41559",
        "attention-backend",
        [
            "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig("
            "head_size=128, dtype=torch.bfloat16, kv_cache_dtype=fp8). Reasons: {FLASH_ATTN: "
            "[kv_cache_dtype not supported]}."
        ],
    ),
    Case(GITHUB + "pull/48167", None, healthy(metrics("1.00", "0.1", 1, 1400)), also="aux-layers"),
    Case(
        GITHUB + "pull/48167 (the other outcome)",
        "runtime",
        ["torch.AcceleratorError: CUDA error: an illegal memory access was encountered"],
    ),
    Case(
        GITHUB + "pull/50169",
        "kv-cache",
        ["AssertionError: All drafting layers should belong to the same kv cache group"],
    ),
    Case(
        GITHUB + "pull/50169 (older text)",
        "kv-cache",
        ["AssertionError: All eagle layers should belong to the same kv cache group"],
    ),
    Case(
        GITHUB + "issues/48894",
        "length",
        [
            "/root/.cache/vllm/torch_compile_cache/a/rank_0_0/eagle_head/x.py:37: unknown: block: "
            "[9,0,0], thread: [81,0,0] Assertion `index out of bounds: 0 <= tl.broadcast_to(tmp10, "
            "[XBLOCK]) < 2048` failed.",
            "(EngineCore pid=7) ERROR 07-21 10:00:00 [core.py:1100] EngineCore encountered a fatal "
            "error.",
            "(EngineCore pid=7) ERROR 07-21 10:00:00 [core.py:1100] torch.AcceleratorError: CUDA "
            "error: device-side assert triggered",
        ],
    ),
    Case(
        "vllm/config/speculative.py",
        "length",
        [
            "ValueError: speculative_max_model_len=8192 cannot be larger than "
            "draft_max_model_len=2048"
        ],
    ),
    Case(
        "vllm/config/speculative.py (the other limit)",
        "length",
        [
            "ValueError: speculative_max_model_len=8192 cannot be larger than "
            "target_max_model_len=4096"
        ],
    ),
    Case(
        GITHUB + "pull/29594",
        "runtime",
        ["torch.AcceleratorError: CUDA error: an illegal memory access was encountered"],
    ),
    Case(
        "https://github.com/vllm-project/speculators/pull/715",
        "runtime",
        [
            '(EngineCore pid=7)   File "/usr/lib/python3/site-packages/vllm/v1/worker/gpu/'
            'cudagraph_utils.py", line 311, in capture',
            "(EngineCore pid=7)     torch.cuda.synchronize()",
            "(EngineCore pid=7) torch.AcceleratorError: CUDA error: an illegal memory access was "
            "encountered",
        ],
    ),
    Case(GITHUB + "issues/42426", None, healthy()),
    Case(
        "https://github.com/vllm-project/vllm-ascend/issues/10801",
        "drafter-missing",
        [
            ARGUMENTS,
            "(APIServer pid=1) huggingface_hub.errors.OfflineModeIsEnabled: Cannot reach https://"
            "huggingface.co/api/models/lightseekorg/kimi-k2.5-eagle3: offline mode is enabled. To "
            "disable it, please unset the `HF_HUB_OFFLINE` environment variable.",
        ],
    ),
    Case(
        "a speculators drafter at an absolute path",
        "drafter-missing",
        ["ValueError: Repo id must be in the form 'repo_name'"],
    ),
    Case(
        GITHUB + "pull/20375",
        "argument",
        [
            "ValidationError: 1 validation error for SpeculativeConfig",
            "  Value error, num_speculative_tokens must be provided with speculative model unless "
            "the draft model config contains an n_predict parameter.",
        ],
    ),
    Case(
        GITHUB + "pull/20375 (newer text)",
        "argument",
        [
            "ValueError: A speculative model was provided, but `num_speculative_tokens` was not "
            "provided"
        ],
    ),
    Case(
        GITHUB + "pull/50170", None, healthy(metrics("1.036", "1.2", 36, 3000)), also="aux-layers"
    ),
    Case(GITHUB + "pull/42704", None, healthy(metrics("1.20", "6.5", 65, 1000)), also="aux-layers"),
    Case(GITHUB + "pull/46488", None, healthy()),
    Case(GITHUB + "pull/43482", None, healthy()),
    Case(
        "https://github.com/vllm-project/speculators/pull/313",
        None,
        healthy(metrics("1.75", "25.0", 250, 1000)),
    ),
    Case("https://github.com/vllm-project/speculators/pull/684", None, healthy()),
    Case(GITHUB + "pull/45343", None, healthy(metrics("1.00", "0.0", 0, 900)), also="aux-layers"),
    Case(GITHUB + "issues/40551", None, healthy(metrics("2.10", "36.7", 367, 1000))),
    Case(GITHUB + "issues/45734", None, healthy()),
]
