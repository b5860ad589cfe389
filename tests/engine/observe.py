"""Looks inside the model while the engine runs it. Runs in an engine environment only.

The comparison of states with the stream is the product's own, with which it rehearses.
"""

import hashlib
import inspect

import models
from package import reachable

reachable()

from vllm_eagle3_patches.rehearsal.inside import hooks  # noqa: E402
from vllm_eagle3_patches.rehearsal.inside.engine import relative  # noqa: E402

__all__ = ["LogitsDigest", "StateObserver", "relative"]


class StateObserver(hooks.Observer):
    """Compares the aux hidden states that a model returns with its real residual stream.

    Under torch.compile the layers are not called one by one: what the model returns is kept, for
    the comparison with the reference model, and nothing more.
    """

    def __init__(self, model, compiled=False):
        super().__init__(model, models.LAYERS, stream=not compiled)
        assert self.inner is not None, f"no decoder found in {type(model).__name__}"

    def figures(self):
        found = super().figures()
        return {"layer_ids": found.pop("ids"), **found}


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
