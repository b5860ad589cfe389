"""The engine's arguments: the user's own, as far as a twin can honour them, and its needs."""

from __future__ import annotations

import dataclasses
from typing import Any

# Options of the server that choose files, sizes or kernels that a twin does not have.
NOT_FOR_A_TWIN = frozenset(
    {
        *(
            "model",
            "tokenizer",
            "revision",
            "code_revision",
            "tokenizer_revision",
            "hf_config_path",
        ),
        *("served_model_name", "quantization", "load_format", "download_dir", "max_model_len"),
        *("speculative_config", "max_num_seqs", "max_num_batched_tokens", "skip_tokenizer_init"),
        *("gpu_memory_utilization", "num_gpu_blocks_override", "swap_space", "cpu_offload_gb"),
        *("data_parallel_size", "data_parallel_rank", "pipeline_parallel_size", "dtype"),
        *("tensor_parallel_size", "hf_overrides", "hf_token", "disable_log_stats", "seed"),
        *("enable_lora", "lora_modules", "language_model_only", "limit_mm_per_prompt"),
        *("logits_processors", "kv_transfer_config", "enforce_eager", "config_format"),
        *("reasoning_parser", "tokenizer_mode", "model_loader_extra_config", "trust_remote_code"),
        *("kv_cache_memory_bytes", "allowed_local_media_path", "enable_log_requests"),
    }
)
CACHE = 2**30  # bytes of KV cache on a GPU
NOT_ON_CPU = frozenset({"attention_backend", "attention_config", "kv_cache_dtype", "block_size"})


def engine(request: dict[str, Any], kind: Any, *, drafter: bool) -> dict[str, Any]:
    """Keyword arguments for `LLM`."""
    fields = {field.name for field in dataclasses.fields(_arguments())}
    chosen: dict[str, Any] = dict(users(request, kind))
    chosen |= {
        "model": request["target"],
        "skip_tokenizer_init": True,
        "dtype": kind.dtype,
        "seed": 0,
        "max_model_len": request["length"],
        "max_num_seqs": 4,
        "max_num_batched_tokens": max(256, request["length"]),
        "enable_prefix_caching": False,
        "disable_log_stats": False,
        "trust_remote_code": False,
        "tensor_parallel_size": request["parallel"],
        "num_gpu_blocks_override": request["blocks"],
        "enforce_eager": not kind.compiled,
    }
    if kind.cpu:
        # The CPU kernel for rotary embedding ignores the strides of its arguments, which
        # DeepSeek's attention without MLA relies on; the native implementation is used instead.
        chosen["compilation_config"] = {"custom_ops": ["all", "-rotary_embedding"]}
    else:
        chosen["gpu_memory_utilization"] = request["memory"]
        if "kv_cache_memory_bytes" in fields:  # else vLLM refuses when a neighbour frees memory
            chosen["kv_cache_memory_bytes"] = CACHE
    if request["multimodal"]:
        if "language_model_only" in fields:
            chosen["language_model_only"] = True
        else:
            chosen["limit_mm_per_prompt"] = request["multimodal"]
    if drafter:
        chosen["speculative_config"] = request["speculative"]
    return chosen


def _arguments() -> Any:
    from vllm.engine.arg_utils import EngineArgs

    return EngineArgs


def users(request: dict[str, Any], kind: Any) -> dict[str, Any]:
    """What the user's own command line sets, read by vLLM's own parser."""
    words = request.get("words") or []
    if not words:
        return {}
    from vllm.engine.arg_utils import AsyncEngineArgs

    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:  # before 0.11.1
        from vllm.utils import FlexibleArgumentParser

    parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
    known, _ = parser.parse_known_args(["--model", request["target"], *words])
    given, plain = AsyncEngineArgs.from_cli_args(known), _arguments()(model=request["target"])
    dropped = NOT_FOR_A_TWIN | (NOT_ON_CPU if kind.cpu else frozenset())
    return {
        field.name: getattr(given, field.name)
        for field in dataclasses.fields(plain)
        if field.name not in dropped and getattr(given, field.name) != getattr(plain, field.name)
    }
