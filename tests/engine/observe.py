"""Looks inside the model while the engine runs it. Runs in an engine environment only.

The comparison of states with the stream is the product's own, with which it rehearses.
"""

import hashlib

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


class LogitsDigest:
    """One hash over the bytes of all logits that the engine computed."""

    def __init__(self, model):
        self.hash, compute = hashlib.sha256(), model.compute_logits

        def compute_logits(*args, **kwargs):
            logits = compute(*args, **kwargs)
            self.hash.update(logits.contiguous().numpy().tobytes())
            return logits

        model.compute_logits = compute_logits
