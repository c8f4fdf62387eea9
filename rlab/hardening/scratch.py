"""Training from random weights: the standard recipe, its augmentation, and drawing all weights anew."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Generator, Tensor, nn

from rlab.core.rng import seeded_globals
from rlab.errors import ModelError

# In place of the defaults for fine-tuning. Nesterov momentum and a cosine schedule come with it.
RECIPE: Mapping[str, Any] = {
    "rounds": 1,
    "epochs": 30,
    "learning_rate": 0.1,
    "weight_decay": 5e-4,
    "distillation_weight": 0.0,
    "ema_decay": 0.999,
    "validation_attacked": 2000,
    "shift": 0.125,
    "amp": True,
}


def draw_weights(model: nn.Module, seed: int) -> None:
    """Draw all weights of the model anew, as its layers do when they are built."""
    with seeded_globals(seed):
        for name, layer in model.named_modules():
            draw = getattr(layer, "reset_parameters", None) or getattr(layer, "_reset_parameters", None)
            if draw is not None:
                draw()
            elif next(layer.parameters(recurse=False), None) is not None:
                raise ModelError(
                    f"{type(model).__name__} cannot be trained from scratch: its layer {name or type(layer).__name__!r} has "
                    "weights of its own but no method reset_parameters(), which draws them anew; add one"
                )


def jittered(x: Tensor, shift: float, mirror: bool, seed: int) -> Tensor:
    """Move each sample of x (n, c, *size) by up to `shift` of its length along every axis, repeating its edges, and mirror half of
    them along the last axis."""
    rng = Generator(x.device).manual_seed(seed)
    for axis in range(2, x.dim()):
        size = x.shape[axis]
        most = round(shift * size)
        at = torch.arange(size, device=x.device).repeat(len(x), 1)
        if mirror and axis == x.dim() - 1:
            flipped = torch.rand(len(x), 1, generator=rng, device=x.device) < 0.5
            at = torch.where(flipped, at.flip(1), at)
        at = (at + torch.randint(-most, most + 1, (len(x), 1), generator=rng, device=x.device)).clamp(0, size - 1)
        x = x.gather(axis, at.view(len(x), *(size if a == axis else 1 for a in range(1, x.dim()))).expand_as(x))
    return x
