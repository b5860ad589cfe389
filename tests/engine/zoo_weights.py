"""Random weights, the same in every process and for every way a model is built."""

import hashlib

import torch

LOUD = 12  # words that a head prefers, so that a drafter of random weight is right now and then


def seeded(name):
    """Its own generator for every tensor: the same values whatever else there is."""
    return torch.Generator().manual_seed(int(hashlib.sha256(name.encode()).hexdigest()[:12], 16))


def randomise(tensors):
    """Weights large and uneven enough for every mistake to show; norms stay about what they are."""
    for name, tensor in tensors:
        if not tensor.is_floating_point() or "correction_bias" in name:
            continue
        noise = torch.randn(tensor.shape, generator=seeded(name))
        if tensor.dim() < 2:
            tensor.add_(0.2 * noise)
        elif "embed" in name or "wte" in name or "wpe" in name:
            tensor.copy_(noise)
        else:
            tensor.copy_(noise / tensor.shape[-1] ** 0.5)


def be_loud(weight):
    weight[:LOUD] *= 4
