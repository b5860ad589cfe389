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
