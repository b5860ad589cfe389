"""The engine's arguments: the user's own, as far as a twin can honour them, and its needs."""

from __future__ import annotations

import dataclasses
import importlib
import os
from pathlib import Path
from typing import Any

from vllm_eagle3_patches.rehearsal.inside import events

# Fields of the engine's arguments that a twin cannot honour, or must not: they choose files, sizes
# or kernels that it does not have, open ports, or write somewhere.
NOT_FOR_A_TWIN = frozenset(
    {
        *("model", "tokenizer", "revision", "code_revision", "tokenizer_revision"),
        *("hf_config_path", "hf_overrides", "hf_token", "trust_remote_code", "config_format"),
        *("tokenizer_mode", "skip_tokenizer_init", "served_model_name", "generation_config"),
        *("quantization", "quantization_config", "load_format", "download_dir", "dtype", "seed"),
        *("model_loader_extra_config", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
        *("max_num_scheduled_tokens", "long_prefill_token_threshold", "max_num_partial_prefills"),
        *("max_long_partial_prefills", "gpu_memory_utilization", "kv_cache_memory_bytes"),
        *("num_gpu_blocks_override", "swap_space", "enable_prefix_caching", "enforce_eager"),
        *("speculative_config", "spec_method", "spec_model", "spec_tokens", "logits_processors"),
        *("tensor_parallel_size", "pipeline_parallel_size", "distributed_executor_backend"),
        *("prefill_context_parallel_size", "decode_context_parallel_size", "enable_dbo"),
        *("enable_eplb", "eplb_config", "expert_placement_strategy", "all2all_backend"),
        *("enable_elastic_ep", "nnodes", "node_rank", "master_addr", "master_port"),
        *("kv_transfer_config", "kv_events_config", "ec_transfer_config", "ec_manager_config"),
        *("weight_transfer_config", "otlp_traces_endpoint", "collect_detailed_traces"),
        *("profiler_config", "logging_config", "log_config_file", "disable_log_stats"),
        *("enable_log_requests", "enable_fault_tolerance", "fault_tolerance_config"),
        *("reasoning_parser", "reasoning_parser_plugin", "io_processor_plugin", "tokens_only"),
        *("language_model_only", "limit_mm_per_prompt", "allowed_local_media_path"),
        *("allowed_media_domains", "enable_lora", "default_mm_loras", "lora_modules"),
    }
)
NOT_FOR_A_TWIN_EITHER = ("data_parallel_", "cpu_offload_", "offload_", "kv_offloading_", "mm_")
# A twin honours these in its own way, or they mean nothing without a server.
IN_ITS_WAY = frozenset(
    {"model", "served_model_name", "speculative_config", "spec_method", "spec_model", "spec_tokens",
     "enforce_eager", "disable_log_stats", "enable_log_requests", "trust_remote_code",
     "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"}
)  # fmt: skip
CACHE = 2**30  # bytes of KV cache on a GPU
NOT_ON_CPU = frozenset(
    {"attention_backend", "attention_config", "kv_cache_dtype", "block_size", "compilation_config"}
)
SERVE = "serve"  # the first of the words, where they are those of `vllm serve`
PARSERS = ("openai", "launchers", "common")  # to 0.29, to 0.32, later


def engine(request: dict[str, Any], kind: Any, *, drafter: bool) -> dict[str, Any]:
    """Keyword arguments for `LLM`; what is left out of the user's own is told to the parent."""
    fields = {field.name for field in dataclasses.fields(_arguments())}
    chosen, left = users(request, kind)
    events.send("options", left=left)
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


def users(request: dict[str, Any], kind: Any) -> tuple[dict[str, Any], list[str]]:
    """What the user's own command line sets, read by vLLM's own parser; what of it is left out.

    Raises:
        SystemExit: the parser refuses it, as the server would.
    """
    words = request.get("words") or []
    if not words:
        return {}, []
    whole, parser = _parser(words[0] == SERVE)
    before = Path.cwd()
    os.chdir(request["started_in"])  # a `--config` file is named from there
    try:
        given = whole.parse_args(words)
    finally:
        os.chdir(before)
    plain = _arguments()(model=request["target"])
    left = []
    for field in dataclasses.fields(plain):
        name = field.name
        if _dropped(name, cpu=kind.cpu) and hasattr(given, name):
            usual = parser.get_default(name)
            if getattr(given, name) != usual:
                setattr(given, name, usual)
                left.append(name)
    given.model = request["target"]
    taken = type(plain).from_cli_args(given)
    chosen = {
        field.name: getattr(taken, field.name)
        for field in dataclasses.fields(plain)
        if not _dropped(field.name, cpu=kind.cpu)
        and getattr(taken, field.name) != getattr(plain, field.name)
    }
    return chosen, [name for name in left if name not in IN_ITS_WAY]


def _dropped(name: str, *, cpu: bool) -> bool:
    given = name in NOT_FOR_A_TWIN or name.startswith(NOT_FOR_A_TWIN_EITHER)
    return given or (cpu and name in NOT_ON_CPU)


def _parser(serve: bool) -> tuple[Any, Any]:
    """The parser of `vllm serve`, or of the API server's module, and the one that has the options.

    Raises:
        ImportError: this vLLM has it in none of the places known.
    """
    try:
        from vllm.utils.argparse_utils import FlexibleArgumentParser
    except ImportError:  # before 0.11.1
        from vllm.utils import FlexibleArgumentParser
    make = next(filter(None, map(_maker, PARSERS)), None)
    if make is None:
        raise ImportError("vllm.entrypoints has no make_arg_parser where it is known to be")
    whole = FlexibleArgumentParser(prog="vllm")
    if not serve:
        return whole, make(whole)
    return whole, make(whole.add_subparsers(dest="subparser").add_parser(SERVE))


def _maker(place: str) -> Any:
    name = f"vllm.entrypoints.{place}.cli_args"
    try:
        return importlib.import_module(name).make_arg_parser
    except ModuleNotFoundError as missing:
        if missing.name is None or not name.startswith(missing.name):
            raise
        return None
