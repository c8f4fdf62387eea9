"""Weights as plain dictionaries: taken, averaged over steps, and drawn back towards where they came from."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

Weights = dict[str, Tensor]


def take(model: nn.Module) -> Weights:
    """A copy of all parameters and buffers."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


@torch.no_grad()
def follow(average: Weights, model: nn.Module, decay: float) -> None:
    """Moves an exponential average a step towards the model's weights; counters are copied."""
    for name, value in model.state_dict().items():
        if value.is_floating_point():
            average[name].lerp_(value, 1 - decay)
        else:
            average[name].copy_(value)


def blend(original: Mapping[str, Tensor], changed: Mapping[str, Tensor], share: float) -> Weights:
    """A point on the line between two weights (Wortsman et al. 2022, https://arxiv.org/abs/2109.01903); 1 is `changed`."""
    return {
        name: torch.lerp(value, changed[name], share) if value.is_floating_point() else changed[name].clone()
        for name, value in original.items()
    }


def finite(weights: Mapping[str, Tensor]) -> bool:
    return all(bool(torch.isfinite(value).all()) for value in weights.values() if value.is_floating_point())


def set_mode(model: nn.Module, norm: str) -> None:
    """Training mode; with `norm` frozen, BatchNorm layers keep the statistics of clean data."""
    model.train()
    if norm == "frozen":
        for layer in model.modules():
            if isinstance(layer, _BatchNorm):
                layer.eval()
