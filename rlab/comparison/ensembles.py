"""Attacks that find a perturbation on the surrogates alone and query the victim only with the result."""

from __future__ import annotations

import math
from typing import NoReturn

import torch
from torch import Tensor

from rlab.comparison.spaces import FreePixels
from rlab.comparison.trial import Trial
from rlab.core.vectors import unit, wide

_STEPS = 10
_STRIDE = 2.5  # total length of the steps, in radii
_HALVINGS = 10  # of the logarithmic range of the radius, once it is bracketed
_CHANGE = 0.5  # of a surrogate's weight per trial, in mean weights


def descend(
    trial: Trial, samples: Tensor, radius: Tensor, weights: Tensor, push: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """L2 PGD on the surrogates' weighted loss: samples (m,), radius (m,), weights (m, s) -> x (m, c, *size) and its push.

    Pass the push to continue from there.
    """
    x0, free = trial.x[samples], isinstance(trial.space, FreePixels)
    push = torch.zeros_like(x0) if push is None else push
    x, length = trial.space.within(samples, push, radius), wide(_STRIDE / _STEPS * radius, x0)
    for _ in range(_STEPS):
        push = push + length * unit(trial.ensemble.loss_gradient(x, trial.y[samples], weights))
        x = trial.space.within(samples, push, radius)
        push = x - x0 if free else push
    return x, push


def even(trial: Trial, samples: Tensor) -> Tensor:
    """Equal weights (m, s) for all surrogates."""
    return trial.x.new_full((len(samples), len(trial.ensemble)), 1 / len(trial.ensemble))


def ensemble_pgd(trial: Trial) -> None:
    """Ten steps of PGD (Madry et al. 2018) on the surrogates' mean loss within an L2 of `strength`, then one query."""
    rows = trial.recorder.live()
    x, _ = descend(trial, rows, trial.x.new_full((len(rows),), trial.strength), even(trial, rows))
    trial.space.keep(rows)
    trial.recorder.ask(x, rows)


def ensemble_pgd_min(trial: Trial) -> None:
    """`ensemble_pgd` at the smallest radius that flips.

    From `strength`, the radius doubles until a flip, halves until a failure, and then bisects in logarithms.
    """
    n = len(trial.x)
    held, won = trial.x.new_zeros(n), trial.x.new_full((n,), torch.inf)
    radius, farthest = trial.x.new_full((n,), trial.strength), math.sqrt(trial.x[0].numel())
    while True:
        rows = trial.recorder.live()
        rows = rows[(won[rows] / held[rows] > 1 + 2.0**-_HALVINGS) & (held[rows] < farthest)]
        if not len(rows):
            return
        x, _ = descend(trial, rows, radius[rows], even(trial, rows))
        margin, _ = trial.recorder.margins(x, rows)
        flips = margin < 0
        trial.space.keep(rows[flips])
        won[rows[flips]], held[rows[~flips]] = radius[rows[flips]], radius[rows[~flips]]
        between = torch.where(held == 0, won / 2, torch.where(won.isinf(), 2 * held, (held * won).sqrt()))
        radius[rows] = between[rows]


def bases(trial: Trial) -> NoReturn:
    """BASES: search for surrogate weights (Cai et al. 2022, https://arxiv.org/abs/2208.03610) within an L2 of `strength`.

    The first query uses equal weights. Then each surrogate in turn gets more weight and less, with one query each, and the
    better weights stay; each perturbation continues from the last.
    """
    rows, turn = trial.recorder.live(), 0
    weights, change = even(trial, rows), _CHANGE / len(trial.ensemble)
    radius = trial.x.new_full((len(rows),), trial.strength)

    def ask(rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        x, after = descend(trial, rows, radius[rows], weights, push[rows])
        margin, _ = trial.recorder.margins(x, rows)
        trial.space.keep(rows[margin < 0])
        return margin, after

    push = torch.zeros_like(trial.x)
    push[rows] = ask(rows, weights)[1]
    while True:
        rows = trial.recorder.live()
        tried = [_shifted(weights[rows], turn % len(trial.ensemble), sign * change) for sign in (1, -1)]
        (more, further), (less, back) = (ask(rows, w) for w in tried)
        up = more <= less.nan_to_num(torch.inf)
        weights[rows] = torch.where(up[:, None], tried[0], tried[1])
        push[rows] = torch.where(wide(up, push), further, back)
        turn += 1


def _shifted(weights: Tensor, number: int, change: float) -> Tensor:
    """Weights (m, s) with one changed; none is negative, and they sum to one."""
    moved = weights.clone()
    moved[:, number] = (moved[:, number] + change).clamp(min=0)
    return moved / moved.sum(1, keepdim=True).clamp(min=1e-12)
