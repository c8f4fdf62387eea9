"""Smooth adversarial perturbation of signals (Han et al. 2020, https://doi.org/10.1038/s41591-020-0791-x), at its smallest.

A white-box bound: it uses the gradients of the model itself, which no black-box attack has. It adds a sequence theta within
+-bound, smoothed by Gaussian kernels of several widths and averaged; theta climbs the model's loss by the sign of its
gradient. Doubling and halving the bound finds the smallest one that flips.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from rlab.victims.torch_module import TorchVictim

KERNELS = ((5, 1.0), (7, 3.0), (11, 5.0), (15, 7.0), (19, 10.0))  # width in samples and deviation, as in the paper
STEPS = 30
ROUNDS = 14  # of doubling and halving


def kernels() -> Tensor:
    """(k, 1, widest), each with sum one."""
    widest = max(size for size, _ in KERNELS)
    rows = []
    for size, deviation in KERNELS:
        at = torch.arange(size) - (size - 1) / 2
        bell = torch.exp(-(at**2) / (2 * deviation**2))
        rows.append(F.pad(bell / bell.sum(), ((widest - size) // 2,) * 2))
    return torch.stack(rows)[:, None]


def smoothed(theta: Tensor) -> Tensor:
    """theta (n, c, t) -> the same: the mean over all kernels."""
    n, leads, time = theta.shape
    kernel = kernels().mean(0, keepdim=True).to(theta)
    return F.conv1d(theta.reshape(n * leads, 1, time), kernel, padding=kernel.shape[-1] // 2).view_as(theta)


def smooth_pgd(victim: TorchVictim, x: Tensor, y: Tensor, bound: Tensor) -> Tensor:
    """x (n, c, t), y (n,), bound (n,) -> x changed within the bounds."""
    limit, theta = bound.view(-1, 1, 1), torch.zeros_like(x)
    for _ in range(STEPS):
        slope = victim.input_gradient(
            x + smoothed(theta), partial(F.cross_entropy, target=y, reduction="none"), "verify"
        )
        theta = (theta + 2.5 / STEPS * limit * smoothed(slope).sign()).clamp(-limit, limit)  # kernels are symmetric
    return x + smoothed(theta)


def smooth_pgd_min(victim: TorchVictim, x: Tensor, y: Tensor, start: float = 0.05) -> Tensor:
    """(n,) L2 of the nearest flip, infinity where there is none: bounds from `start` in the signal's unit."""
    x, y = x.to(victim.device), y.to(victim.device)
    low, high = x.new_zeros(len(x)), x.new_full((len(x),), torch.inf)
    bound, nearest = x.new_full((len(x),), start), x.new_full((len(x),), torch.inf)
    for _ in range(ROUNDS):
        changed = smooth_pgd(victim, x, y, bound)
        flipped = victim(changed, "verify").argmax(1) != y
        l2 = (changed - x).flatten(1).norm(dim=1)
        nearest = torch.where(flipped, torch.minimum(nearest, l2), nearest)
        high, low = torch.where(flipped, bound, high), torch.where(flipped, low, bound)
        bound = torch.where(high.isinf(), 2 * bound, (low + high) / 2)
    return nearest.cpu()
