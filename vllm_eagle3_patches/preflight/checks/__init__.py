"""The checks, each a pure function of the context, in the order a start-up meets their faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from vllm_eagle3_patches.preflight.checks import (
    architecture,
    arguments,
    attention,
    aux_layers,
    config_values,
    embedding,
    files,
    fusion,
    ignored,
    image,
    kv_cache,
    layer_kinds,
    layer_shapes,
    length,
    parallel,
    precision,
    quantization,
    vocabulary,
    weight_names,
)
from vllm_eagle3_patches.preflight.context import Context
from vllm_eagle3_patches.preflight.findings import Finding

CHECKS: tuple[Callable[[Context], Iterator[Finding]], ...] = tuple(
    module.check
    for module in (
        arguments,
        files,
        config_values,
        architecture,
        parallel,
        length,
        quantization,
        attention,
        weight_names,
        layer_kinds,
        vocabulary,
        layer_shapes,
        fusion,
        image,
        embedding,
        aux_layers,
        precision,
        kv_cache,
        ignored,
    )
)
