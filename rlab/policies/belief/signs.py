"""What the belief learns of a query where the model tells only its label: on which side of the margin's end the drop lies.

The drop is believed to be Gaussian before the query; of what is left of it above or below 1 the mean and the variance are kept
(assumed-density filtering), as an observation of its own size and noise, so that all else goes on as with scores.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from rlab.policies.belief.posterior import Memory, Model, expected, factor, kernel, observe, solve

_VAGUE = (1e-6, 1e4)  # variances that an observation may have


def no_sides(model: Model, like: Tensor) -> dict[str, Tensor]:
    """What the memory of no query holds besides: hypotheses that all weigh the same, for rows as many as `like` (n,)."""
    return {"weights": like.new_zeros(len(like), len(model.hypotheses))}


def observe_side(memory: Memory, model: Model, assignment: Tensor, won: Tensor, most: int) -> dict[str, Tensor]:
    """The memory with one more query (n, p) that flipped where `won` (n,); the hypotheses weighed by how they foretold it."""
    before = memory["weights"]
    memory = observe(memory, model, assignment, torch.ones_like(memory["need"]), most)
    mean, variance = _forecast(memory, model)
    z = torch.where(won[:, None], mean - 1, 1 - mean) / variance.sqrt()
    weights = before + torch.special.log_ndtr(z)
    best = weights.argmax(1, keepdim=True)
    believed, spread, side = (value.gather(1, best)[:, 0] for value in (mean, variance, z))
    drop, site = cut_gaussian(believed, spread, side, won)
    memory["drop"][:, -1, 0], memory["site"][:, -1] = drop, site
    return {**memory, "weights": weights}


def _forecast(memory: Memory, model: Model) -> tuple[Tensor, Tensor]:
    """(n, h) twice: the last query's drop as the earlier ones foretell it, and the variance, noise included."""
    hypotheses = model.table.to(memory["drop"]).expand(len(memory["drop"]), -1, -1)
    covariance, prior = kernel(memory, model, hypotheses), expected(memory, hypotheses)
    mean, variance = prior[..., -1], covariance[..., -1, -1]
    if memory["drop"].shape[1] == 1:
        return mean, variance
    cross = covariance[..., :-1, -1:]
    residual = memory["drop"][:, None, :-1] - prior[..., :-1, None]
    solved = solve(factor(covariance[..., :-1, :-1]), torch.cat([cross, residual], -1))
    told = (cross * solved).sum(2)  # (n, h, 2)
    return mean + told[..., 1], (variance - told[..., 0]).clamp(min=_VAGUE[0])


def cut_gaussian(mean: Tensor, variance: Tensor, z: Tensor, won: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) twice: the observation, and the variance of its noise, after which mean and variance are those of the cut Gaussian."""
    tail = (-0.5 * z.square() - 0.5 * math.log(2 * math.pi) - torch.special.log_ndtr(z)).exp()
    shrunk = (tail * (tail + z)).clamp(1e-6, 1 - 1e-6)
    site = (variance * (1 - shrunk) / shrunk).clamp(*_VAGUE)
    after = mean + torch.where(won, 1.0, -1.0) * variance.sqrt() * tail
    return after + site / variance * (after - mean), site
