"""What an attack from a paper works with: the recorder, where it may move, surrogates, strength and randomness.

All inputs and lengths are in [0, 1].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NoReturn

import torch
from torch import Tensor

from rlab.comparison.recorder import QueryRecorder, Until
from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.core.rng import normal, uniform
from rlab.core.vectors import lengths, unit, wide
from rlab.policies.belief.frontier import make_frontier
from rlab.priors.surrogates import SurrogatePrior


def margins(scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (m, k) -> the true class's lead (m,), and the strongest other class (m,)."""
    best, rival = scores.scatter(1, y[:, None], -torch.inf).max(1)
    return scores.gather(1, y[:, None])[:, 0] - best, rival


def ask_margins(recorder: QueryRecorder, x: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
    """Query x (m, c, *size) -> margins (m,), NaN for rows that were not sent, and the strongest other class (m,)."""
    return margins(recorder.ask(x, samples), recorder.y[samples])


def still_open(recorder: QueryRecorder, samples: Tensor) -> Tensor:
    """Those of the samples (m,) whose rows are still counted."""
    return samples[recorder.open.to(samples.device)[samples]]


class Space(ABC):
    """Originals x0 (n, c, *size) and the current point x of each sample's attack."""

    def __init__(self, x0: Tensor) -> None:
        self.x0, self.x, self._tried = x0, x0.clone(), x0.clone()

    @abstractmethod
    def moved(self, samples: Tensor, step: Tensor) -> Tensor:
        """The point one step further: samples (m,), step (m, c, *size) -> (m, c, *size); `keep` accepts it."""

    @abstractmethod
    def within(self, samples: Tensor, push: Tensor, radius: Tensor) -> Tensor:
        """The point that best follows a push (m, c, *size) within an L2 radius (m,) -> (m, c, *size)."""

    def keep(self, samples: Tensor) -> None:
        """Make the last point tried the current one of these samples."""
        self.x[samples] = self._tried[samples]


class FreePixels(Space):
    """Any change of any value."""

    def moved(self, samples: Tensor, step: Tensor) -> Tensor:
        return self._try(samples, (self.x[samples] + step).clamp(0, 1))

    def within(self, samples: Tensor, push: Tensor, radius: Tensor) -> Tensor:
        shrink = (radius.to(push) / lengths(push).clamp(min=1e-12)).clamp(max=1)
        return self._try(samples, (self.x0[samples] + push * wide(shrink, push)).clamp(0, 1))

    def _try(self, samples: Tensor, x: Tensor) -> Tensor:
        self._tried[samples] = x
        return x


class InPalette(Space):
    """Assignments of palette entries to patches that follow a push best for their cost in squared L2.

    A push is the sum of an attack's steps; the palette follows it as far as it can. The bank (n, f + 1, c, *size) is the palette
    applied to the originals, which are its entry 0.
    """

    def __init__(self, bank: Tensor, grid: PatchGrid) -> None:
        super().__init__(bank[:, 0])
        self.bank, self.grid, self.change = bank, grid, bank[:, 1:] - bank[:, :1]
        self.cost = grid.collect(self.change.square())  # (n, f, p)
        self.push, self._tried_push = torch.zeros_like(self.x0), torch.zeros_like(self.x0)

    def moved(self, samples: Tensor, step: Tensor) -> Tensor:
        reached = lengths(self.x[samples] - self.x0[samples])
        return self.within(samples, self.push[samples] + step, reached + lengths(step))

    def within(self, samples: Tensor, push: Tensor, radius: Tensor) -> Tensor:
        x = self._following(samples, push, radius.to(push).square() * (1 + 1e-5))
        self._tried[samples], self._tried_push[samples] = x, push
        return x

    def keep(self, samples: Tensor) -> None:
        super().keep(samples)
        self.push[samples] = self._tried_push[samples]

    def nearer(self, samples: Tensor, share: Tensor) -> Tensor:
        """Points at a share (m,) of the current L2: fewer patches or milder entries along the same push."""
        cost = lengths(self.x[samples] - self.x0[samples]).square() * share.to(self.x0).square()
        return self._following(samples, self.push[samples], cost)

    def _following(self, samples: Tensor, push: Tensor, cost: Tensor) -> Tensor:
        """The points that follow a push (m, c, *size) best within a cost (m,)."""
        frontier = make_frontier(self.grid.collect(self.change[samples] * push[:, None]), self.cost[samples])
        return render(self.bank[samples], frontier.cut(frontier.for_cost(cost)), self.grid)


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
        return self.prior.differentiate(number, x * span + low, of, *columns)[1] * span


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


@dataclass(frozen=True)
class Peer:
    """An attack from a paper. `strength` is the usual L2 of a step or of the whole; `palette` the same inside a palette."""

    run: Callable[[Trial], None]
    strength: float | None  # None if the attack finds it
    palette: float | None = None  # None if it cannot stay inside one
    surrogates: bool = True
    until: Until = "flip"
    images_only: bool = False
    answers: Literal["scores", "labels"] = "scores"  # what it uses


# samples, their strongest other classes, whether the last step helped, round -> directions
Direct = Callable[[Tensor, Tensor, Tensor, int], Tensor]


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
                margin, following = ask_margins(recorder, space.moved(tried, sign * step[left]), tried)
                better = margin < best[tried]
                kept = tried[better]
                best[kept], rival[kept], helped[kept] = margin[better], following[better], True
                space.keep(kept)
        round_ += 1
