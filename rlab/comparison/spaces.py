"""Where an attack may move: free pixels, or a palette on patches. All inputs and lengths are in [0, 1]."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.core.vectors import lengths, wide
from rlab.policies.belief.frontier import Frontier, make_frontier


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


@dataclass(frozen=True)
class Bank:
    """A palette applied to the originals: (n, f + 1, c, *size), where entry 0 is untouched, on a grid of patches."""

    values: Tensor
    grid: PatchGrid


class InPalette(Space):
    """Assignments of palette entries to patches that follow a push best for their cost in squared L2.

    A push is the sum of an attack's steps; the palette follows it as far as it can.
    """

    def __init__(self, bank: Bank) -> None:
        super().__init__(bank.values[:, 0])
        self.bank, self.change = bank, bank.values[:, 1:] - bank.values[:, :1]
        self.cost = bank.grid.total(self.change.square().sum(2))  # (n, f, p)
        self.push, self._tried_push = torch.zeros_like(self.x0), torch.zeros_like(self.x0)

    def moved(self, samples: Tensor, step: Tensor) -> Tensor:
        reached = lengths(self.x[samples] - self.x0[samples])
        return self.within(samples, self.push[samples] + step, reached + lengths(step))

    def within(self, samples: Tensor, push: Tensor, radius: Tensor) -> Tensor:
        frontier = self._frontier(samples, push)
        x = self._render(samples, frontier.cut(frontier.for_cost(radius.to(push).square() * (1 + 1e-5))))
        self._tried[samples], self._tried_push[samples] = x, push
        return x

    def keep(self, samples: Tensor) -> None:
        super().keep(samples)
        self.push[samples] = self._tried_push[samples]

    def nearer(self, samples: Tensor, share: Tensor) -> Tensor:
        """Points at a share (m,) of the current L2: fewer patches or milder entries along the same push."""
        cost = lengths(self.x[samples] - self.x0[samples]).square() * share.to(self.x0).square()
        frontier = self._frontier(samples, self.push[samples])
        return self._render(samples, frontier.cut(frontier.for_cost(cost)))

    def _frontier(self, samples: Tensor, push: Tensor) -> Frontier:
        effect = self.bank.grid.total((self.change[samples] * push[:, None]).sum(2))
        return make_frontier(effect, self.cost[samples])

    def _render(self, samples: Tensor, assignment: Tensor) -> Tensor:
        return render(self.bank.values[samples], assignment, self.bank.grid)
