"""Looks inside the model while the engine runs it. Runs in an engine environment only.

Hooks on every decoder layer record the residual stream on entry; a hook on the whole model sees
what the runner gets. The two are compared on every forward of the run, by layer id.
"""

import hashlib
import inspect


def decoder_of(model):
    """The module that holds the decoder layers and the final norm, whatever wraps it."""
    for path in ("language_model.model", "language_model", "model"):
        inner = model
        for name in path.split("."):
            inner = getattr(inner, name, None)
        if hasattr(inner, "layers") and hasattr(inner, "norm"):
            return inner
    raise AssertionError(f"no decoder found in {type(model).__name__}")


class StateObserver:
    """Compares the aux hidden states that a model returns with its real residual stream.

    Under torch.compile the layers are not called one by one: what the model returns is kept, for
    the comparison with the reference model, and nothing more.
    """

    def __init__(self, model, compiled=False):
        self.decoder = decoder_of(model)
        self.stream, self.last, self.worst, self.forwards = {}, {}, {}, 0
        self.shapes = set()
        if not compiled:
            for index, layer in enumerate(self.decoder.layers):
                layer.register_forward_pre_hook(self._entry(index), with_kwargs=True)
            self.decoder.norm.register_forward_pre_hook(self._end)
        model.register_forward_hook(self._output)

    @property
    def layer_ids(self):
        return tuple(self.decoder.aux_hidden_state_layers)

    def _entry(self, index):
        def hook(layer, args, kwargs):
            given = inspect.signature(layer.forward).bind(*args, **kwargs).arguments
            self._record(index, given["hidden_states"], given["residual"])

        return hook

    def _end(self, norm, args):
        self._record(len(self.decoder.layers), *args)

    def _record(self, index, hidden, residual):
        self.stream[index] = hidden.clone() if residual is None else hidden + residual

    def _output(self, model, args, output):
        stream, self.stream = self.stream, {}
        captured = output[1] if isinstance(output, tuple) else []
        self.shapes.add((len(captured), len(self.layer_ids)))
        for layer_id, state in zip(self.layer_ids, captured, strict=False):
            self.last[layer_id] = state.clone()
            if layer_id in stream:
                difference = (state - stream[layer_id]).abs().max().item()
                self.worst[layer_id] = max(self.worst.get(layer_id, 0.0), difference)
        self.forwards += 1

    def figures(self):
        return {
            "layer_ids": self.layer_ids,
            "forwards": self.forwards,
            "captured_and_asked": sorted(self.shapes),
            "difference": self.worst,
        }


class FirstNorms:
    """The residual stream of each layer, as the first norm that runs in it is given it.

    A norm of vLLM adds its arguments before anything else; so what it is given is what the layer
    takes for its residual, however the decoder passed it on. Where attention runs before any norm
    (Molmo's `norm_after`), it is given the stream itself. Read from the run alone.
    """

    def __init__(self, model, count):
        import torch

        found = [
            (name, m)
            for name, m in model.named_modules()
            if isinstance(m, torch.nn.ModuleList) and len(m) == count
            and name.rsplit(".", 1)[-1] in ("layers", "h", "blocks")
        ]  # fmt: skip
        (name, layers), *more = found
        assert not more, found
        holder = model.get_submodule(name.rpartition(".")[0])
        self.states, self.open = {}, None
        for index, layer in enumerate(layers):
            layer.register_forward_pre_hook(self._enter(index))
            layer.register_forward_hook(self._leave)
            for part in layer.modules():
                if type(part).__name__.endswith("Norm"):
                    part.register_forward_pre_hook(self._norm, with_kwargs=True)
            for _, part in layer.named_children():
                if type(part).__name__.endswith("Attention"):
                    part.register_forward_pre_hook(self._attention, with_kwargs=True)
        for _, part in holder.named_children():
            if type(part).__name__.endswith("Norm"):
                part.register_forward_pre_hook(self._last(count), with_kwargs=True)

    def _enter(self, index):
        def hook(layer, args):
            self.open = index

        return hook

    def _leave(self, layer, args, output):
        assert self.open is None, "a layer without a norm"

    def _norm(self, norm, args, kwargs):
        if self.open is not None:
            self.states[self.open] = self._sum(args, kwargs)
            self.open = None

    def _attention(self, attention, args, kwargs):
        if self.open is not None:
            given = inspect.signature(attention.forward).bind(*args, **kwargs).arguments
            self.states[self.open] = given["hidden_states"].clone()
            self.open = None

    def _last(self, index):
        def hook(norm, args, kwargs):
            self.states[index] = self._sum(args, kwargs)

        return hook

    @staticmethod
    def _sum(args, kwargs):
        return sum(t.clone() for t in (*args, *kwargs.values()) if t is not None)


class LogitsDigest:
    """One hash over the bytes of all logits that the engine computed."""

    def __init__(self, model):
        self.hash, compute = hashlib.sha256(), model.compute_logits

        def compute_logits(*args, **kwargs):
            logits = compute(*args, **kwargs)
            self.hash.update(logits.contiguous().numpy().tobytes())
            return logits

        model.compute_logits = compute_logits


def relative(state, expected):
    return ((state - expected).abs().max() / expected.abs().max()).item()
