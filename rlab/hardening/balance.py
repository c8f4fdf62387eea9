"""Classes among the samples found: how uneven they are, said in a sentence, and how often each is drawn instead."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

_MOST = 4.0  # no class is drawn more than so many times as often as the usual one
_UNEVEN = 2.0  # times as many of one class as of another that count as uneven


def class_counts(y: Tensor, classes: int) -> Tensor:
    """(k,) samples of each class; a sample with several labels counts for each."""
    return (y.sum(0) if y.dim() > 1 else torch.bincount(y, minlength=classes)).cpu().float()


def class_weights(counts: Tensor) -> Tensor:
    """(k,) how often a class is drawn, so that the classes found seldom come as often as the others."""
    if not counts.sum():
        return torch.ones_like(counts)
    usual = counts[counts > 0].median()
    return (usual / counts.clamp(min=1)).clamp(1 / _MOST, _MOST)


def row_weights(y: Tensor, weights: Tensor) -> Tensor:
    """(n,) by label; a sample with several labels is drawn as its rarest one."""
    weights = weights.to(y.device)
    if y.dim() > 1:
        return torch.where(y > 0, weights, 0.0).amax(1).clamp(min=float(weights.min()))
    return weights[y]


def draw(weights: Tensor, count: int, generator: Generator) -> Tensor:
    """(count,) different rows, by weights (n,)."""
    return torch.multinomial(weights.cpu().double(), count, replacement=False, generator=generator)


def imbalance(counts: Tensor, names: Sequence[str]) -> str:
    """A sentence where the classes among the samples found are uneven, else nothing."""
    if not counts.sum():
        return ""
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] < _UNEVEN * counts[least].clamp(min=1):
        return ""
    said = [f"{names[i] if i < len(names) else i} {int(counts[i])}" for i in (most, least)]
    return f"samples found are uneven over the classes, from {said[0]} down to {said[1]}"
