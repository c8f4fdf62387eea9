"""Attacks that solve for a perturbation on the surrogates alone, and ask the victim only about the result."""

from __future__ import annotations

import math
from typing import NoReturn

import torch
from torch import Tensor

from rlab.comparison.spaces import FreePixels
from rlab.comparison.trial import Trial
from rlab.core.vectors import unit, wide

_STEPS = 10
_STRIDE = 2.5  # the steps' length together, in radii
_HALVINGS = 10  # of the radius's logarithmic range, once it is bracketed
_CHANGE = 0.5  # of a surrogate's weight at a time, in mean weights


def descend(
    trial: Trial, samples: Tensor, radius: Tensor, weights: Tensor, push: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """L2 PGD on the surrogates' weighted loss: samples (m,), radius (m,), weights (m, s) -> x (m, c, *size), and the push
    that led there, from which it may go on."""
    x0, free = trial.x[samples], isinstance(trial.space, FreePixels)
    push = torch.zeros_like(x0) if push is None else push
    x, length = trial.space.within(samples, push, radius), wide(_STRIDE / _STEPS * radius, x0)
    for _ in range(_STEPS):
        push = push + length * unit(trial.ensemble.loss_gradient(x, trial.y[samples], weights))
        x = trial.space.within(samples, push, radius)
        push = x - x0 if free else push
    return x, push


def even(trial: Trial, samples: Tensor) -> Tensor:
    """(m, s): the same weight for all surrogates."""
    return trial.x.new_full((len(samples), len(trial.ensemble)), 1 / len(trial.ensemble))


def ensemble_pgd(trial: Trial) -> None:
    """Ten steps of projected gradient descent (Madry et al. 2018) on the surrogates' mean loss, within an L2 of `strength`;
    then one query."""
    rows = trial.recorder.live()
    x, _ = descend(trial, rows, trial.x.new_full((len(rows),), trial.strength), even(trial, rows))
    trial.space.keep(rows)
    trial.recorder.ask(x, rows)


def ensemble_pgd_min(trial: Trial) -> None:
    """The same at the smallest radius that flips: from `strength` twice as far until the first flip, half as far until the
    first failure, then half way between (in logarithms)."""
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
    """Search of the surrogates' weights (Cai et al. 2022, https://arxiv.org/abs/2208.03610) within an L2 of `strength`.

    The first query is of even weights. Then one surrogate after the other gets more weight, and less, each one query, and the
    better of the two stays; perturbations go on from the last.
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
    """(m, s): one weight changed, none below zero, all together one."""
    moved = weights.clone()
    moved[:, number] = (moved[:, number] + change).clamp(min=0)
    return moved / moved.sum(1, keepdim=True).clamp(min=1e-12)
