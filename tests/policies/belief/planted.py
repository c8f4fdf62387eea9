"""Linear models whose best assignments are known, for the belief search to find."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rlab.core.attack import Attack
from rlab.core.goals import Goal
from rlab.data.batch import Batch
from rlab.policies.belief import Belief
from rlab.policies.belief.frontier import make_frontier
from rlab.policies.belief.geometry import make_geometry
from rlab.priors.base import Prior
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims.base import Victim
from tests.helpers import CHANNELS, PATCHES, SIZES, labelled_by, make_batch

PALETTE = ["illuminate@0.2", "dead_pixel@0.5", "gaussian_noise@0.3"]  # four entries: brighter and darker count apart


class LinearVictim(Victim):
    """Scores (x - 1/2) W with random weights, and noise of its own if asked for."""

    def __init__(self, rank: int, classes: int = 2, seed: int = 0, noise: float = 0.0, **options: Any) -> None:
        super().__init__(**{"outputs": "logits", **options})
        values = CHANNELS[rank] * math.prod(SIZES[rank])
        self.draw = torch.Generator().manual_seed(seed)
        self.weight = 3 * torch.randn(values, classes, generator=self.draw, dtype=torch.float64)
        self.noise = noise

    def _predict(self, x: Tensor) -> Tensor:
        scores = ((x.double() - 0.5).flatten(1)[:, :, None] * self.weight).sum(1)
        return scores + self.noise * torch.randn(scores.shape, generator=self.draw, dtype=torch.float64)


class LinearNet(nn.Module):
    """The same model where gradients can be had."""

    def __init__(self, victim: LinearVictim) -> None:
        super().__init__()
        self.weight = nn.Parameter(victim.weight.float())

    def forward(self, x: Tensor) -> Tensor:
        return (x - 0.5).flatten(1) @ self.weight


@dataclass(frozen=True)
class Case:
    """A victim of two classes, its data and an attack on it."""

    victim: LinearVictim
    batch: Batch
    attack: Attack

    def run(self) -> AttackResult:
        return run_attack(self.attack, self.victim, self.batch)

    def optimum(self, seeds: Tensor) -> Tensor:
        """(n,): the distance of the cheapest Lagrangian set that flips each sample, by the true weights."""
        bank = self.attack.palette.bank(self.batch.x, self.batch.bounds, seeds.tolist()).double()
        sign = torch.where(self.batch.y == 0, 1.0, -1.0)[:, None]
        slope = sign * (self.victim.weight[:, 0] - self.victim.weight[:, 1])
        change = bank[:, 1:] - bank[:, :1]
        effect = -self.attack.grid.total((change * slope.view(-1, 1, *self.batch.x.shape[1:])).sum(2))
        margin = ((self.batch.x.double() - 0.5).flatten(1) * slope).sum(1)
        frontier = make_frontier(effect, make_geometry(change, None, self.attack.grid).cost)
        steps = frontier.for_effect(margin).clamp(min=1)
        return frontier.cost.gather(1, steps[:, None] - 1)[:, 0].sqrt()


def make_case(rank: int, n: int = 8, seed: int = 0, noise: float = 0.0, **options: Any) -> Case:
    victim = LinearVictim(rank, seed=seed)
    batch = labelled_by(victim, make_batch(rank, n, seed))
    victim.noise = noise
    usual: dict[str, Any] = {
        "palette": PALETTE,
        "patch": PATCHES[rank],
        "policy": "belief",
        "until": "budget",
        "distance": "l2",
    }
    return Case(victim, batch, make_attack(batch, **{**usual, **options}))


@dataclass(frozen=True)
class Told(Prior):
    """A prior that says what it was told to, whatever the input."""

    said: Tensor  # (k, c, *size)

    def directions(self, x: Tensor, y: Tensor, scale: Tensor, goal: Goal) -> Tensor:
        return self.said.expand(len(x), *self.said.shape)


def told_policy(said: Tensor) -> Belief:
    return Belief(prior=Told(said))
