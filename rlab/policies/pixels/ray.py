"""How far to go along a direction: the margins of the last two answers predict where the model flips.

Perturbations are (n, c, *size) in units of L2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.env import State
from rlab.core.vectors import unit, wide

# How far beyond the point where the margin should vanish to go, as a share of the way there: after a flip by the first query, by
# a later one, and after a miss.
SPARE = (0.08, 0.2, 0.5)
GROWTH = (1.05, 4.0)  # how many times farther to go after a miss, at least and at most


@dataclass(frozen=True)
class Ray(Rows):
    """A direction, and the radius to query next along it."""

    towards: Tensor  # (n, c, *size) of any length; zero where nothing is known
    radius: Tensor  # (n,)
    missed: Tensor  # (n,) the largest radius that did not flip
    last: Tensor  # (n,) the radius of the query before the last
    margin: Tensor  # (n,) the margin there

    @classmethod
    def begin(cls, state: State, towards: Tensor, radius: float) -> Ray:
        none = torch.zeros_like(state.margin)
        return cls(towards=towards, radius=none + radius, missed=none, last=none, margin=state.margin0)

    @property
    def delta(self) -> Tensor:
        """(n, c, *size): the perturbation to query next."""
        return unit(self.towards) * wide(self.radius, self.towards)

    def answered(self, state: State, queried: Tensor, margin: Tensor) -> Ray:
        """With the next radius: slightly beyond where the margin vanishes by the last two answers, between the largest miss and
        the nearest flip; `queried` and `margin` (n,) are of the last query. A perturbation that vanished when rounded counts
        as long as it was."""
        queried = torch.where(queried > 0, queried, self.radius)
        won, flipped = margin < 0, state.margin < 0
        start = state.margin0 / queried.clamp(min=1e-12)
        drop = (self.margin - margin) / (
            queried - self.last
        )  # per unit of L2; a straight line's if that is not plausible
        drop = torch.where(drop > 0.2 * start, drop, ((state.margin0 - margin) / queried).maximum(0.1 * start))
        vanishes = queried + margin / drop
        spare = torch.where(won, torch.where(self.last == 0, SPARE[0], SPARE[1]), SPARE[2]) * (vanishes - queried).abs()
        missing = (vanishes + spare).clamp(GROWTH[0] * queried, GROWTH[1] * queried)
        missed = torch.where(won, self.missed, self.missed.maximum(queried))
        best = torch.where(flipped, state.distance, torch.inf)
        low = torch.where(missed < best, missed, 0.5 * best)
        nearer = (vanishes + spare).maximum(low + 0.3 * (best - low)).minimum(0.99 * best)
        return replace(self, radius=torch.where(flipped, nearer, missing), missed=missed, last=queried, margin=margin)
