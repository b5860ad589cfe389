"""`drafter`: tensors the drafter's class has no place for, or that it needs and are not there.

vLLM's loader stops at a tensor without a parameter (`KeyError`, or `There is no module or
parameter named …`), and says nothing of a parameter without a tensor: it keeps whatever memory
it was made of.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from vllm_eagle3_patches.preflight import snippets
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.findings import Finding, error, warning
from vllm_eagle3_patches.preflight.model_files import model_files
from vllm_eagle3_patches.sources import ClassSite, Sources

CLASS = "drafter"
# Ends of a name below a module: plain, quantized, and KV-cache scales.
PARAMETER = re.compile(
    r"weight|bias|(weight|input|output|kv|q|k|v|attn)?_?(scale|scales|zero_point|packed|shape|g_idx)"
    r"(_inv|_2)?|qweight|qzeros|scales|g_idx"
)
PREFIX = 'name = "model." + name'
ASSIGNED = re.compile(r"\.(\w+)[ \t]*(?::[^=\n]*)?=(?!=)")
OPTIONAL = ("fc", "input_norm", "fc_norm")  # modules that the config switches on and off
NEEDED = ("self_attn.o_proj", "mlp.down_proj")


def check(context: Context) -> Iterator[Finding]:
    tensors = context.drafter.weights.tensors
    site = context.drafter.site
    if not tensors or site is None:
        return
    source = snippets.text(context.sources, site.path)
    prefixed = [n for n in tensors if n.startswith("model.") and "lm_head" not in n]
    if prefixed and PREFIX in source:
        yield error(
            CLASS,
            f"{len(prefixed)} drafter tensors are named `model.…`, e.g. {prefixed[0]}; "
            f"{site.name} puts another `model.` before them",
            "rename them in the checkpoint: an EAGLE-3 head has `fc.weight`, `midlayer.…` or "
            "`layers.0.…`, `norm.weight`, `lm_head.weight`, `d2t` at its top",
        )
        return
    yield from _homeless(context, site, source)
    yield from _bias(context, site)
    yield from _dropped(context, site, source)
    yield from _missing(context, site)


def _names(sources: Sources, path: str) -> set[str]:
    """Every attribute that the modules behind the drafter's class may give to something."""
    found: set[str] = set()
    for module in model_files(sources, path):
        found.update(ASSIGNED.findall(snippets.text(sources, module)))
    return found


def _homeless(context: Context, site: ClassSite, source: str) -> Iterator[Finding]:
    tensors = context.drafter.weights.tensors or {}
    attributes: set[str] | None = None
    strange: dict[str, list[str]] = {}
    count = context.built.layers

    def skipped(module: str) -> bool:
        """Whether `load_weights` may pass over this module's tensors: `"fc."`, `"input_norm."`."""
        return f'"{module}."' in source

    for name in tensors:
        if "rotary_emb" in name:
            continue  # some loaders skip these, some do not
        parts = name.replace("midlayer.", "layers.0.").split(".")
        layer = parts[1] if parts[0] == "layers" and len(parts) > 1 else ""
        if count is not None and layer.isdigit() and int(layer) >= count:
            strange.setdefault(f"layers.{layer}", []).append(name)
            continue
        modules = parts[:-1] if PARAMETER.fullmatch(parts[-1]) else parts
        for part in modules:
            if part.isdigit() or f'"{part}' in source or f".{part}" in source or "t2d" in name:
                continue
            if attributes is None:
                attributes = _names(context.sources, site.path)
            if part not in attributes:
                strange.setdefault(part, []).append(name)
        if parts[0] in OPTIONAL and context.built.lacks(parts[0]) and not skipped(parts[0]):
            strange.setdefault(parts[0], []).append(name)
    for part, repeated in strange.items():
        names = list(dict.fromkeys(repeated))
        yield error(
            CLASS,
            f"the drafter has {names[0]}{f' and {len(names) - 1} more' if names[1:] else ''}, but "
            f"{site.name} of vLLM {context.version} has no `{part}` in {site.path}",
            _fix(part, context),
        )


def _fix(part: str, context: Context) -> str:
    if part in ("q_norm", "k_norm"):
        return (
            "the head was trained with Qwen3 attention: it needs a vLLM with "
            "Eagle3Qwen3ForCausalLM (0.24.0), and that architecture in config.json"
        )
    key = {"input_norm": "norm_before_fc", "fc_norm": "fc_norm"}.get(part)
    if key is not None and not context.drafter.raw.get(key):
        return f'write "{key}": true into the drafter\'s config.json'
    if key is not None:
        return f"take a newer vLLM, whose drafter class reads `{key}`"
    if part.startswith("layers."):
        return "this class builds fewer layers; take a newer vLLM, or a drafter of one layer"
    return "take a vLLM whose drafter class has it, or a drafter made for this one"


def _dropped(context: Context, site: ClassSite, source: str) -> Iterator[Finding]:
    """`input_norm` is passed over without a word where the config does not ask for it."""
    if context.tensor("input_norm.weight") is None or '"input_norm."' not in source:
        return
    if context.built.lacks("input_norm") and context.built.uses_aux is not False:
        yield warning(
            "ignored-setting",
            f"the drafter has input_norm.weight, and {site.name} passes over it: config.json does "
            "not set norm_before_fc",
            'write "norm_before_fc": true into the drafter\'s config.json',
        )


def _bias(context: Context, site: ClassSite) -> Iterator[Finding]:
    """The drafter's own query-key-value layer is made without a bias, whatever the config says."""
    biases = [n for n in context.drafter.weights.tensors or {} if n.endswith("q_proj.bias")]
    if not biases:
        return
    for node in ast.walk(context.sources.tree(site.path)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "QKVParallelLinear":
            given = [k.value for k in node.keywords if k.arg == "bias"]
            if given and isinstance(given[0], ast.Constant) and given[0].value is False:
                yield error(
                    CLASS,
                    f"the drafter has {biases[0]}, and the layer of vLLM {context.version} has no "
                    f"bias ({site.path}:{node.lineno})",
                    "take a newer vLLM, whose layer follows `attention_bias` (0.16.0 has it)"
                    if context.drafter.config.get("attention_bias")
                    else "take a drafter made for this class",
                )


def _missing(context: Context, site: ClassSite) -> Iterator[Finding]:
    tensors = context.drafter.weights.tensors or {}
    names = [name.replace("midlayer.", "layers.0.") for name in tensors]
    wanted = [f"layers.0.{module}" for module in NEEDED]
    if context.built.uses_aux is True and context.built.fc_input is not None:
        wanted.append("fc")
    absent = [module for module in wanted if not any(n.startswith(f"{module}.") for n in names)]
    if not absent:
        return
    yield error(
        "drafter-missing",
        f"the drafter has no tensors for {', '.join(absent)}; {site.name} would run with "
        "whatever memory they were made of, and vLLM does not say so",
        "fetch the whole checkpoint"
        if "fc" not in absent or len(absent) > 1
        else 'fetch the whole checkpoint; a head without aux states needs "eagle_config": '
        '{"use_aux_hidden_state": false} and a vLLM that reads it (0.12.0)',
    )
