"""What the belief learns from a label alone: on which side of the margin's end the drop lies.

Before the query the drop is believed to be Gaussian. The mean and variance of the part of it above or below 1 are kept (assumed
density filtering) as an observation with a size and a noise of its own, so that everything else works as with scores.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from rlab.policies.belief.answers import Assumptions, History, observe
from rlab.policies.belief.geometry import Geometry
from rlab.policies.belief.posterior import expected, factor, kernel, solve

_VAGUE = (1e-6, 1e4)  # the smallest and largest variance of an observation


def observe_side(
    answers: History,
    weights: Tensor,
    geometry: Geometry,
    model: Assumptions,
    assignment: Tensor,
    won: Tensor,
    most: int,
) -> tuple[History, Tensor]:
    """With one more query (n, p) that flipped where `won` (n,), and the log weights (n, h) by how well each foretold it."""
    after = observe(answers, geometry, model, assignment, torch.ones_like(weights[:, :1]), most)
    mean, variance = _forecast(after, model)
    z = torch.where(won[:, None], mean - 1, 1 - mean) / variance.sqrt()
    weights = weights + torch.special.log_ndtr(z)
    best = weights.argmax(1, keepdim=True)
    believed, spread, side = (value.gather(1, best)[:, 0] for value in (mean, variance, z))
    drop, site = cut_gaussian(believed, spread, side, won)
    drops = torch.cat([after.drop[:, :-1], drop[:, None, None]], 1)
    sites = torch.cat([after.site[:, :-1], site[:, None]], 1)
    return replace(after, drop=drops, site=sites), weights


def _forecast(answers: History, model: Assumptions) -> tuple[Tensor, Tensor]:
    """(n, h) twice: the last query's drop as the earlier ones foretell it, and its variance, including noise."""
    hypotheses = model.table.to(answers.drop).expand(len(answers.drop), -1, -1)
    covariance, prior = kernel(answers, model, hypotheses), expected(answers, hypotheses)
    mean, variance = prior[..., -1], covariance[..., -1, -1]
    if answers.drop.shape[1] == 1:
        return mean, variance
    cross = covariance[..., :-1, -1:]
    residual = answers.drop[:, None, :-1] - prior[..., :-1, None]
    solved = solve(factor(covariance[..., :-1, :-1]), torch.cat([cross, residual], -1))
    explained = (cross * solved).sum(2)  # (n, h, 2)
    return mean + explained[..., 1], (variance - explained[..., 0]).clamp(min=_VAGUE[0])


def cut_gaussian(mean: Tensor, variance: Tensor, z: Tensor, won: Tensor) -> tuple[Tensor, Tensor]:
    """(n,) twice: the observation and its noise variance that turn the Gaussian into one like its part on the side."""
    tail = (-0.5 * z.square() - 0.5 * math.log(2 * math.pi) - torch.special.log_ndtr(z)).exp()
    shrunk = (tail * (tail + z)).clamp(1e-6, 1 - 1e-6)
    site = (variance * (1 - shrunk) / shrunk).clamp(*_VAGUE)
    after = mean + torch.where(won, 1.0, -1.0) * variance.sqrt() * tail
    return after + site / variance * (after - mean), site
