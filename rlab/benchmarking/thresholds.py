"""On both sides of the flip: the least distortion found that leaves the true class a chosen confidence.

The attack's own search takes the confidence below the threshold. Where it fell too far, patches are given back: half of those that
tell an assignment above from one below, by chance; where one is left, small changes that cost less than it does.
Shapes: n rows, f entries, p patches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlab.benchmarking.ladder_search import growth, spent
from rlab.core.env import State, render
from rlab.core.goals import Goal
from rlab.core.grid import PatchGrid
from rlab.core.rng import uniform
from rlab.victims.base import QueryMeter

_ROUND = 20  # queries after which the way to a threshold is looked for anew


@dataclass(frozen=True)
class Threshold(Goal):
    """The true class's confidence falls below `confidence`; `beyond` the flip, `goal` is reached as well."""

    goal: Goal
    confidence: float
    beyond: bool

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        below = scores.gather(1, labels[:, None]).squeeze(1) - math.log(self.confidence)
        return torch.maximum(below, self.goal.margin(scores, labels)) if self.beyond else below

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.goal.correct(scores, labels)

    def check(self, labels: Tensor, classes: int) -> None:
        self.goal.check(labels, classes)

    def met(self, scores: Tensor, labels: Tensor, tolerance: float) -> Tensor:
        """(n,) within the tolerance, and on its side of the flip."""
        confidence = scores.gather(1, labels[:, None]).squeeze(1).exp()
        side = self.goal.reached(scores, labels) if self.beyond else self.correct(scores, labels)
        return ((confidence - self.confidence).abs() <= tolerance) & side


def settle(
    meter: QueryMeter, state: State, goal: Threshold, grid: PatchGrid, cost: Tensor, steps: int, tolerance: float
) -> State:
    """Rows below the threshold, each brought near it with no more distortion, where `steps` queries find a way; the others as
    they were. `cost` (n, f + 1, p) is the squared L2 of every entry on every patch."""
    low, high = torch.zeros_like(state.assignment), state.assignment.clone()  # above the threshold, below it
    above = torch.full_like(state.margin, math.inf)  # margin of `low`
    done = goal.met(state.scores, state.y, tolerance)
    for step in range(steps):
        rows = (~done).nonzero().flatten()
        if not len(rows):
            break
        if step % _ROUND == _ROUND - 1:  # from the start, by another chance
            low[rows], high[rows], above[rows] = 0, state.assignment[rows], math.inf
        some = state[rows]
        wanted, halved = _between(low[rows], high[rows], cost[rows], some.seed, some.step + 2**22 + step)
        x = render(some.bank, wanted, grid)
        scores = meter(x, some.sample, "search")
        met, margin = goal.met(scores, some.y, tolerance), goal.margin(scores, some.y)
        nearer = (margin >= 0) & (halved | (margin < above[rows]))
        low[rows] = torch.where(nearer[:, None], wanted, low[rows])
        above[rows] = torch.where(nearer, margin, above[rows])
        high[rows] = torch.where((margin < 0)[:, None], wanted, high[rows])
        near = rows[met]
        done[near] = True
        state = replace(
            state,
            assignment=state.assignment.index_copy(0, near, wanted[met]),
            x=state.x.index_copy(0, near, x[met]),
            scores=state.scores.index_copy(0, near, scores[met]),
        )
    return state


def _between(low: Tensor, high: Tensor, cost: Tensor, seed: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """(n, p): half of the patches that differ, taken from `high`. Where but one differs, `low` with any entry on any patch that
    keeps it cheaper than `high`. (n,): which of both it was."""
    entries, patches = cost.shape[1:]
    chance = uniform(seed, step, (1 + entries) * patches)
    differs = low != high
    count = differs.sum(1)
    order = chance[:, :patches].masked_fill(~differs, math.inf).argsort(1).argsort(1)
    half = torch.where(differs & (order < (count // 2)[:, None]), high, low)
    room = spent(cost, high) - spent(cost, low)
    fits = (growth(cost, low) < room[:, None, None]).flatten(1)
    drawn = chance[:, patches:].masked_fill(~fits, -1.0).argmax(1)
    more = low.scatter(1, (drawn % patches)[:, None], (drawn // patches)[:, None])
    more = torch.where(fits.any(1)[:, None], more, low)
    return torch.where((count > 1)[:, None], half, more), count > 1
