"""What the CPU backend of vLLM 0.32 lacks for recurrent layers under speculation, nothing else.

A rejected draft token must leave no trace in a layer's state. The kernels of a GPU keep the states
of all draft tokens and go on from the last accepted one; those of the CPU ignore how many were
accepted, or do it wrongly. The same meaning is written here in plain Python.
"""

import sys

import torch
from torch.nn import functional

KERNELS = "vllm.model_executor.layers.mamba.ops.causal_conv1d"


def install():
    import importlib

    kernels = importlib.import_module(KERNELS)
    before = kernels.causal_conv1d_update
    kernels.causal_conv1d_update = causal_conv1d_update
    for module in list(sys.modules.values()):
        if vars(module).get("causal_conv1d_update") is before:
            module.causal_conv1d_update = causal_conv1d_update
    from vllm.model_executor.layers.mamba import short_conv

    assert short_conv.causal_conv1d_update is causal_conv1d_update
    short_conv.ShortConv.forward_native = short_conv.ShortConv.forward_cuda
    _state_update()


def _state_update():
    from vllm import _custom_ops

    kernel = _custom_ops.selective_state_update_cpu

    def update(*arguments):
        accepted = arguments[-2]
        return kernel(*arguments) if accepted is None else selective_state_update(*arguments)

    _custom_ops.selective_state_update_cpu = update


def selective_state_update(
    state, x, dt, A, B, C, D, z, dt_bias, dt_softplus, slots, into, null, out, accepted, starts
):  # fmt: skip
    """state: (slots, heads, size, inner); x, dt, out: (tokens, heads, size); B, C: (.., inner)."""
    starts, each = starts.tolist(), x.shape[1] // B.shape[1]
    for row in range(len(starts) - 1):
        begin = int(slots[row, max(int(accepted[row]) - 1, 0)])
        if begin == null:
            continue
        current = state[begin].clone()
        for step, token in enumerate(range(starts[row], starts[row + 1])):
            pace = dt[token] + dt_bias
            pace = functional.softplus(pace) if dt_softplus else pace
            put, get = (m[token].repeat_interleave(each, 0)[:, None] for m in (B, C))
            current = current * (A * pace[..., None]).exp() + (pace * x[token])[..., None] * put
            result = (current * get).sum(-1) + D * x[token]
            out[token] = result if z is None else result * functional.silu(z[token])
            if int(into[row, step]) != null:
                state[int(into[row, step])] = current


def causal_conv1d_update(
    x, conv_state, weight, bias=None, activation=None, conv_state_indices=None,
    num_accepted_tokens=None, query_start_loc=None, max_query_len=-1, **others
):  # fmt: skip
    """x: (tokens, channels); conv_state: (slots, channels, places); weight: (channels, width)."""
    width, out = weight.shape[1], torch.empty_like(x)
    slots = conv_state_indices.reshape(len(conv_state_indices), -1)[:, 0].tolist()
    if query_start_loc is None:
        query_start_loc = torch.arange(len(slots) + 1)
    starts = query_start_loc.tolist()
    for row, slot in enumerate(slots):
        begin, end = starts[row], starts[row + 1]
        if slot == 0 or begin == end:  # the null block: padding
            continue
        skipped = int(num_accepted_tokens[row]) - 1 if num_accepted_tokens is not None else 0
        history = conv_state[slot][:, skipped : skipped + width - 1].clone()
        line = torch.cat([history, x[begin:end].T], dim=1)
        result = functional.conv1d(line[None], weight[:, None], bias, groups=len(weight))[0]
        out[begin:end] = (functional.silu(result) if activation in ("silu", True) else result).T
        if num_accepted_tokens is None:
            conv_state[slot][:, : width - 1] = line[:, 1 - width :]
        else:
            conv_state[slot][:, : line.shape[1] - 1] = line[:, 1:]
    return out
