"""How `random` and `square` go on after their first flip: the same random moves, inside a ball that shrinks.

The ball's radius is a share of the best flip's distance, so no query is spent on anything farther. A walk enters the ball by
restoring random patches of the best flip, dear ones sooner. From then on each move is followed by restores until the result
lies in the ball again, and it stays if it lowers the margin. A nearer flip shrinks the ball, and the walk starts again from it.
After `PATIENCE` queries without a gain the walk starts again from the best flip, in a larger ball.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.env import Accept, Proposal, State, Task
from rlab.core.rng import uniform
from rlab.core.vectors import wide
from rlab.policies.base import Policy
from rlab.policies.belief.geometry import cost_of, costs

RADIUS = 0.9  # of the first ball, as a share of the distance of the best flip
SMALLER, LARGER = 1.5, 0.5  # the power to which a nearer flip raises this share, and a walk without a gain
LEAST, MOST = 0.3, 0.99  # its range
PATIENCE = 6  # queries without a gain


@dataclass(frozen=True)
class Ball(Rows):
    """Where the walk is; before the first flip, where the search is."""

    cost: Tensor  # (n, f + 1, p) what an entry adds to the distance, additive over patches
    walk: Tensor  # (n, p) an assignment
    margin: Tensor  # (n,) its margin
    enters: Tensor  # (n,) bool: the walk starts at the best flip and has yet to enter the ball
    best: Tensor  # (n,) the distance of the best flip, infinite before the first
    radius: Tensor  # (n,) as a share of it
    misses: Tensor  # (n,) queries without a gain


class BallSearch(Policy[Ball]):
    """A search by random moves, which continues after its first flip."""

    reduces: ClassVar[bool] = True

    @abstractmethod
    def move(self, assignment: Tensor, state: State, task: Task) -> Tensor:
        """One random change of each assignment (n, p)."""

    def begin(self, state: State, task: Task) -> Ball:
        change = (state.bank[:, 1:] - state.bank[:, :1]).div_(wide(state.scale, state.bank))
        cost = costs(change, task.grid, task.distance)
        flipped = state.margin < 0
        best = torch.where(flipped, state.distance, math.inf)
        return Ball(
            cost=torch.cat([torch.zeros_like(cost[:, :1]), cost], 1), walk=state.assignment, margin=state.margin,
            enters=flipped, best=best, radius=torch.full_like(best, RADIUS), misses=torch.zeros_like(best),
        )  # fmt: skip

    def observe(self, state: State, memory: Ball, task: Task) -> Ball:
        """Lead the walk on from the last answer."""
        flipped = state.margin < 0
        nearer = flipped & (state.distance < memory.best)
        margin = task.goal.margin(state.answer, state.y) + state.slack
        gains = ~memory.enters & (margin < memory.margin)
        misses = torch.where(gains, 0.0, memory.misses + 1)
        lost = flipped & ~nearer & (misses >= PATIENCE)
        stays, again = memory.enters | gains | (task.accept == "always"), ~flipped | nearer | lost
        power = torch.where(nearer & memory.best.isfinite(), SMALLER, torch.where(lost, LARGER, 1.0))
        return replace(
            memory,
            walk=_pick(again, state.assignment, _pick(stays, state.queried, memory.walk)),
            margin=_pick(again, state.margin, _pick(stays, margin, memory.margin)),
            enters=again & flipped,
            best=torch.where(flipped, state.distance, math.inf),
            radius=(memory.radius**power).clamp(LEAST, MOST),
            misses=torch.where(again, 0.0, misses),
        )

    def propose(self, state: State, memory: Ball, task: Task) -> Proposal[Ball]:
        flipped, walk = state.margin < 0, memory.walk
        moved = torch.where(memory.enters[:, None], walk, self.move(walk, state, task))
        room = cost_of(memory.radius * state.distance, task.distance, state.x[0].numel())
        inside = restore(moved, moved != walk, memory.cost, room, uniform(~state.seed, state.step, moved.shape[1]))
        rule = torch.where(flipped, int(Accept.IF_NEARER), int(Accept.IF_BETTER))
        return Proposal(torch.where(flipped[:, None], inside, moved), rule, memory)


def restore(assignment: Tensor, moved: Tensor, cost: Tensor, room: Tensor, chance: Tensor) -> Tensor:
    """assignment (n, p) with random patches restored until it costs at most `room` (n,), those just `moved` (n, p) last.

    With `chance` (n, p) in [0, 1) the next patch is one with a probability proportional to its cost.
    """
    spent = cost.gather(1, assignment[:, None])[:, 0]
    waits = torch.where(moved, torch.inf, -(1 - chance).log() / spent.clamp(min=1e-30))
    order = waits.argsort(1)
    left = spent.gather(1, order).flip(1).cumsum(1).flip(1)  # what it costs if only the patches before are restored
    gone = torch.zeros_like(moved).scatter(1, order, left > room[:, None])
    return torch.where(gone, 0, assignment)


def _pick(rows: Tensor, new: Tensor, old: Tensor) -> Tensor:
    return torch.where(wide(rows, new), new, old)
