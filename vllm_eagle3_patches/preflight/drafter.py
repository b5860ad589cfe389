"""The drafter as the installed vLLM will see it: its config after vLLM's own rewriting.

Three rewritings stand between config.json and the drafter's class, all read from the source:
`SpeculativeConfig.hf_config_override` (makes MTP models of DeepSeek configs and others),
`EAGLEConfig` (prefixes the architecture), and for the speculators format the `update_…` function
of its algorithm.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_eagle3_patches import registry
from vllm_eagle3_patches.errors import RefusedError
from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.statements import run
from vllm_eagle3_patches.preflight.values import Bag
from vllm_eagle3_patches.preflight.weights import Weights
from vllm_eagle3_patches.sources import ClassSite, Sources

SPECULATIVE = ("vllm/config/speculative.py", "vllm/config/__init__.py")
EAGLE = "vllm/transformers_utils/configs/eagle.py"
ALGORITHMS = "vllm/transformers_utils/configs/speculators/algos.py"
SPECULATORS = "vllm/transformers_utils/configs/speculators/base.py"
# Settings that Transformers' config classes have a default for when config.json is silent.
DEFAULTED = frozenset(
    {
        *("architectures", "attention_bias", "attention_dropout", "dtype", "head_dim"),
        *("hidden_act", "hidden_size", "initializer_range", "intermediate_size"),
        *("kv_lora_rank", "layer_types", "max_position_embeddings", "mlp_bias", "model_type"),
        *("n_routed_experts", "num_attention_heads", "num_hidden_layers"),
        *("num_key_value_heads", "num_nextn_predict_layers", "q_lora_rank"),
        *("qk_nope_head_dim", "qk_rope_head_dim", "rms_norm_eps", "rope_parameters"),
        *("rope_scaling", "rope_theta", "sliding_window", "tie_word_embeddings"),
        *("torch_dtype", "v_head_dim", "vocab_size"),
    }
)


@dataclass(frozen=True)
class Drafter:
    """A drafter under one installed vLLM.

    Attributes:
        folder: where it lies.
        raw: its config.json.
        config: the settings that reach the drafter's class.
        speculators: whether config.json has the speculators format.
        original: the architecture before vLLM's rewriting, None where config.json has none.
        overridden: the same after `hf_config_override`.
        architecture: the one vLLM looks up in its registry, None where that cannot be told.
        problem: the exception that the rewriting raises, or None.
        site: the drafter's class, None where the registry has none of that name.
        weights: its weight files.
    """

    folder: Path
    raw: Mapping[str, Any]
    config: Mapping[str, Any]
    speculators: bool
    original: str | None
    overridden: str | None
    architecture: str | None
    problem: str | None
    site: ClassSite | None
    weights: Weights

    @property
    def is_mla(self) -> bool:
        return self.config.get("kv_lora_rank") is not None


def bag(config: Mapping[str, Any]) -> Bag:
    """A config object of Transformers with these settings."""
    return Bag(config, closed=True, unsure=DEFAULTED)


def is_speculators(raw: Mapping[str, Any]) -> bool:
    """As vLLM's `get_config` decides it: `speculators_config` there, and no `model_type`."""
    return raw.get("speculators_config") is not None and raw.get("model_type") in (
        None,
        "speculators",
    )


def is_eagle3(raw: Mapping[str, Any], weights: Weights) -> bool:
    """Whether the head is surely EAGLE-3, by its name, its vocabulary or its tensors."""
    named = f"{_first(raw)} {raw.get('speculators_model_type')}"
    tensors = weights.tensors or {}
    return (
        "agle3" in named
        or raw.get("draft_vocab_size") is not None
        or any(name.startswith("midlayer.") or name == "d2t" for name in tensors)
    )


def _first(config: Mapping[str, Any]) -> str | None:
    names = config.get("architectures")
    return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None


def load(
    sources: Sources,
    folder: Path,
    raw: Mapping[str, Any],
    weights: Weights,
    method: str = "eagle3",
) -> Drafter:
    """Works out what vLLM makes of the drafter's config; `method` is `eagle3` or `eagle`."""
    speculators = is_speculators(raw)
    config: dict[str, Any] = copy.deepcopy(dict(raw))
    problem = None
    if speculators:
        config, problem = _convert(sources, raw)
    overridden = architecture = _first(config)
    if problem is None and architecture is not None:
        config = _override(sources, config)
        overridden = architecture = _first(config)
        if not speculators and architecture is not None:
            architecture = _renamed(sources, config, method)
    site = None
    if architecture is not None:
        entry = registry.read(sources).get(architecture)
        if entry is not None:
            try:
                site = registry.classes(sources, entry)[0]
            except RefusedError:
                site = None
    return Drafter(
        folder, raw, config, speculators, _first(raw), overridden, architecture, problem, site,
        weights,
    )  # fmt: skip


def _convert(sources: Sources, raw: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The speculators format turned into vLLM's, and the exception that raises."""
    layer = raw.get("transformer_layer_config")
    config: dict[str, Any] = copy.deepcopy(layer) if isinstance(layer, dict) else {}
    kind = raw.get("speculators_model_type")
    updaters = _updaters(sources)
    if not updaters:
        return config, "this vLLM does not know the speculators format"
    if not isinstance(kind, str) or kind not in updaters:
        return config, f"speculators_model_type {kind!r} is not one of {', '.join(updaters)}"
    if not isinstance(layer, dict):
        return config, "ValueError: Must provide transformer_layer_config"
    updater = updaters[kind]
    source, target = [argument.arg for argument in updater.args.args][:2]
    outcome = run(updater, {source: copy.deepcopy(dict(raw)), target: config})
    # From 0.24.0 the class attribute `model_type = "speculators"` is kept.
    if 'key == "model_type"' in snippets.text(sources, SPECULATORS):
        config["model_type"] = "speculators"
    return config, outcome.raised


def _updaters(sources: Sources) -> dict[str, ast.FunctionDef]:
    """The functions registered with `@register_speculator("…")`."""
    if not sources.exists(ALGORITHMS):
        return {}
    return {
        str(decorator.args[0].value): statement
        for statement in sources.tree(ALGORITHMS).body
        if isinstance(statement, ast.FunctionDef)
        for decorator in statement.decorator_list
        if isinstance(decorator, ast.Call)
        and decorator.args
        and isinstance(decorator.args[0], ast.Constant)
    }


def _override(sources: Sources, config: dict[str, Any]) -> dict[str, Any]:
    for path in SPECULATIVE:
        function = snippets.function(sources, path, "hf_config_override")
        if function is not None:
            holder = bag(config)
            run(function, {function.args.args[0].arg: holder})
            return holder.attributes
    return config


def _renamed(sources: Sources, config: dict[str, Any], method: str) -> str | None:
    """The architecture that `EAGLEConfig(…, method=…)` gives."""
    function = snippets.function(sources, EAGLE, "__init__")
    if function is None:
        return None
    keywords: dict[str, Any] = {"model_type": "eagle"}
    run(
        function,
        {"self": Bag(), "model": bag(config), "method": method, "kwargs": keywords},
    )
    return _first(keywords)
