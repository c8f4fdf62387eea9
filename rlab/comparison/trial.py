"""What an attack from a paper works with: the recorder, where it may move, surrogates, strength and randomness."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import Tensor

from rlab.comparison.recorder import QueryRecorder, margins
from rlab.comparison.spaces import Space
from rlab.core.rng import normal, uniform
from rlab.core.vectors import unit, wide
from rlab.priors.surrogates import SurrogatePrior


@dataclass(frozen=True)
class Ensemble:
    """Surrogates for inputs in [0, 1], with log-probabilities as scores."""

    prior: SurrogatePrior
    scale: tuple[float, float]

    def __len__(self) -> int:
        return len(self.prior.surrogates)

    def direction(self, x: Tensor, number: Tensor, weights: Tensor) -> Tensor:
        """x (m, c, *size), surrogate number (m,), weights (m, k) -> the unit gradient of <weights, scores>."""
        out = torch.zeros_like(x)
        for s in number.unique().tolist():
            rows = number == s
            out[rows] = self._gradient(s, x[rows], lambda scores, w: (scores * w).sum(1), weights[rows])
        return unit(out)

    def loss_gradient(self, x: Tensor, y: Tensor, weights: Tensor) -> Tensor:
        """x (m, c, *size), surrogate weights (m, s) -> the gradient of their weighted cross-entropy."""
        out = torch.zeros_like(x)
        for s in range(len(self)):
            gradient = self._gradient(s, x, lambda scores, y: -scores.gather(1, y[:, None])[:, 0], y)
            out += gradient * wide(weights[:, s].to(x), x)
        return out

    def _gradient(self, number: int, x: Tensor, of: Callable[..., Tensor], *columns: Tensor) -> Tensor:
        low, span = self.scale
        return self.prior.gradient(number, x * span + low, of, *columns) * span


@dataclass(frozen=True)
class Trial:
    """One call of an attack on the samples x (n, c, *size) in [0, 1] of a recorder."""

    recorder: QueryRecorder
    space: Space
    seeds: Tensor  # (n,) random seed of each sample
    strength: float
    surrogates: Ensemble | None = None

    @property
    def x(self) -> Tensor:
        return self.recorder.x

    @property
    def y(self) -> Tensor:
        return self.recorder.y

    @property
    def ensemble(self) -> Ensemble:
        assert self.surrogates is not None  # checked before the first query
        return self.surrogates

    def uniform(self, samples: Tensor, step: int, count: int) -> Tensor:
        """(m, count) in [0, 1)."""
        return uniform(self.seeds[samples], torch.full_like(samples, step), count)

    def normal(self, samples: Tensor, step: int) -> Tensor:
        """(m, c, *size), standard normal."""
        count = self.x[0].numel()
        return normal(self.uniform(samples, step, count + count % 2))[:, :count].view(-1, *self.x.shape[1:]).to(self.x)


Direct = Callable[
    [Tensor, Tensor, Tensor, int], Tensor
]  # samples, strongest other classes, whether the last step helped, round


def walk(trial: Trial, direct: Direct) -> NoReturn:
    """SimBA's loop (Guo et al. 2019): a step forward, or else a step back, kept if it lowers the margin.

    `direct` returns a unit direction (m, c, *size) for each open sample (m,).
    """
    recorder, space = trial.recorder, trial.space
    best, rival = margins(recorder.clean, trial.y)
    helped, round_ = torch.ones_like(trial.y, dtype=torch.bool), 0
    while True:
        rows = recorder.live()
        step = trial.strength * direct(rows, rival[rows], helped[rows], round_)
        helped[rows] = False
        for sign in (1.0, -1.0):
            left = ~helped[rows]
            if left.any():
                tried = rows[left]
                margin, following = recorder.margins(space.moved(tried, sign * step[left]), tried)
                better = margin < best[tried]
                kept = tried[better]
                best[kept], rival[kept], helped[kept] = margin[better], following[better], True
                space.keep(kept)
        round_ += 1
