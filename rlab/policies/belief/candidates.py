"""Candidates for the next query: what the belief would propose if it aimed further, drew differently or only restored.

The first candidate is always the rule's own. Each is described by what the belief says of it and by the state of the run, and no
number depends on rank, palette, size or model, so that one chooser can serve signals, images and video.
Shapes: n samples, c candidates, p patches.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.distances import POWERS
from rlab.core.env import State, Task
from rlab.core.rng import uniform
from rlab.policies.belief.answers import repeats
from rlab.policies.belief.frontier import Frontier, make_frontier
from rlab.policies.belief.geometry import cost_of
from rlab.policies.belief.rule import Effects, RuleChoice
from rlab.policies.belief.state import BeliefState

LONG = 100  # queries after which the age of a run makes no difference
SOME = 0.25  # share of the patches whose effects are drawn in a partial draw
FADE = 0.2  # how fast old forecast errors are forgotten
Kind = Literal["free", "some", "near"]  # draw all effects; those of some patches; keep only changes of the best flip
# How the effects are drawn (kind, temperature), and the boldnesses to try with it, relative to the rule's. The first is the rule.
# Before the first flip the boldness multiplies the drop to aim at; after it, it is the power of the share of the distance.
GROUPS: tuple[tuple[Kind, float, tuple[float, ...]], ...] = (
    ("free", 1.0, (1.0, 0.7, 1.6)),
    ("free", 0.0, (1.0, 0.7, 1.6)),
    ("some", 1.0, (1.0, 0.7, 1.6, 0.4)),
    ("near", 1.0, (1.0, 0.4)),
)
CANDIDATES = tuple((boldness, temperature, kind) for kind, temperature, each in GROUPS for boldness in each)
DESCRIBED = 12  # numbers that describe a candidate
STANDING = 15  # numbers that describe the run


@dataclass(frozen=True)
class Record(Rows):
    """How good the forecasts for n samples were, recent ones first."""

    bias: Tensor  # (n,) mean of forecast - drop
    error: Tensor  # (n,) mean of its absolute value
    flips: Tensor  # (n,) share of queries that flipped

    @classmethod
    def empty(cls, like: Tensor) -> Record:
        """Before the first query, for as many rows as `like` (n,)."""
        none = torch.zeros_like(like)
        return cls(none, none + 0.3, none)

    def after(self, forecast: Tensor, drop: Tensor, flipped: Tensor) -> Record:
        """With one more query: the forecast and the drop, in units of what was needed, and whether it flipped, (n,) each."""
        error = (forecast - drop).clamp(-2, 2)
        return Record(
            self.bias + FADE * (error - self.bias),
            self.error + FADE * (error.abs() - self.error),
            self.flips + FADE * (flipped.float() - self.flips),
        )


@dataclass(frozen=True)
class Candidates(Rows):
    """Possible next queries for n samples."""

    assignment: Tensor  # (n, c, p)
    described: Tensor  # (n, c, DESCRIBED) what the belief says of each
    standing: Tensor  # (n, STANDING) the state of the run
    legal: Tensor  # (n, c) bool
    expected: Tensor  # (n, c) the expected drop, in units of what is needed

    def take(self, choice: Tensor) -> tuple[Tensor, Tensor]:
        """choice (n,) -> the assignment (n, p) and its expected drop (n,)."""
        rows = torch.arange(len(choice), device=choice.device)
        return self.assignment[rows, choice], self.expected[rows, choice]


def make_candidates(
    rule: RuleChoice, memory: BeliefState, record: Record, effects: Effects, state: State, task: Task
) -> Candidates:
    """All candidates for the rule's rival, and what the belief says of each."""
    cost, flipped = memory.geometry.cost, state.margin < 0
    rows = torch.arange(len(state), device=cost.device)
    need, mean = effects.need[rows, rule.rival], effects.mean[rows, rule.rival]
    proposed = torch.cat(_assignments(rule, memory, effects, need, mean, state, task), 1)
    near = torch.tensor([kind == "near" for _, _, kind in CANDIDATES], device=cost.device)
    legal = (~near | flipped[:, None]) & ~repeats(proposed, memory.answers.codes)
    legal[:, 0] = True
    expected = _summed(mean, proposed) / need[:, None]
    deviation = effects.temperature[:, None] * _summed(effects.deviation, proposed) / need[:, None]
    power, spent, whole = POWERS[task.distance], _summed(cost, proposed), cost.amax(1).sum(1, keepdim=True)
    best = torch.where(flipped[:, None], _summed(cost, state.assignment[:, None]), whole)
    described = [
        (expected - 1).clamp(-2, 3),
        deviation.clamp(-2, 2),
        ((expected - 1 - record.bias[:, None]) / (record.error[:, None] + 0.05)).clamp(-5, 5) / 2,
        log_share(spent, best, power),
        log_share(spent, whole, power),
        (proposed > 0).float().mean(2),
        (proposed != state.assignment[:, None]).float().mean(2),
        (proposed != state.queried[:, None]).float().mean(2),
    ]
    kinds = torch.tensor([(math.log(b), t, kind == "some", kind == "near") for b, t, kind in CANDIDATES])
    described.extend(kinds.to(cost).expand(len(state), -1, -1).unbind(2))
    standing = _standing(memory, record, state, task, log_share(best, whole, power)[:, 0])
    return Candidates(proposed, torch.stack(described, 2), standing, legal, expected)


def _assignments(
    rule: RuleChoice, memory: BeliefState, effects: Effects, need: Tensor, mean: Tensor, state: State, task: Task
) -> list[Tensor]:
    """The assignments of each group, (n, b, p)."""
    cost, drawn = memory.geometry.cost, effects.temperature[:, None, None] * effects.deviation
    some = uniform(~state.seed, state.step, mean.shape[2])[:, None] < SOME
    held, at = (state.assignment > 0)[:, None], (state.assignment - 1).clamp(min=0)[:, None]
    frontiers = (
        rule.frontier,
        make_frontier(mean, cost),
        make_frontier(torch.where(some, mean + drawn, mean), cost),
        make_frontier(torch.where(held, (mean + drawn).gather(1, at), 0.0), cost.gather(1, at)),
    )
    free, certain, partial, near = (
        _aimed(frontier, boldnesses, memory, need, state, task)
        for frontier, (_, _, boldnesses) in zip(frontiers, GROUPS, strict=True)
    )
    near = near * state.assignment[:, None]  # the only entry of its frontier is the best flip's own
    return [torch.cat([rule.assignment[:, None], free[:, 1:]], 1), certain, partial, near]


def _aimed(
    frontier: Frontier, boldnesses: Sequence[float], memory: BeliefState, need: Tensor, state: State, task: Task
) -> Tensor:
    """(n, b, p): the cheapest sets of a frontier with the drop to aim at, or after the flip within the distance to aim at."""
    bold = torch.tensor(boldnesses, device=need.device)
    distance = memory.shrink[:, None] ** bold * state.distance[:, None]
    nearer = frontier.for_cost(cost_of(distance, task.distance, state.x[0].numel()))
    enough = frontier.for_effect(bold * (memory.bold * need)[:, None])
    return frontier.cuts(torch.where(state.margin[:, None] < 0, nearer, enough).clamp(min=1))


def _summed(per_change: Tensor, assignment: Tensor) -> Tensor:
    """per_change (n, f, p), assignment (n, c, p) -> (n, c)."""
    return torch.cat([torch.zeros_like(per_change[:, :1]), per_change], 1).gather(1, assignment).sum(2)


def _standing(memory: BeliefState, record: Record, state: State, task: Task, best: Tensor) -> Tensor:
    """(n, STANDING); `best` (n,) is the log of the best flip's distance over that of changing everything."""
    weights, (f, p) = memory.weights.softmax(1), memory.geometry.cost.shape[1:]
    standing = [
        log_scaled(state.step, LONG),
        (1 - state.step / min(task.budget, LONG)).clamp(min=0),
        (state.margin < 0).float(),
        (memory.idle / 10).clamp(max=3),
        memory.shrink,
        memory.bold,
        -(weights * weights.clamp(min=1e-9).log()).sum(1) / math.log(weights.shape[1]),  # entropy of the hypotheses
        record.bias,
        record.error,
        record.flips,
        (task.goal.margin(state.answer, state.y) / state.margin0).clamp(-2, 2),
        best / 2,
        *log_scaled(torch.tensor([p, f]), 1000).to(best)[:, None].expand(2, len(best)),
        torch.full_like(best, float(memory.geometry.projection.shape[2] > 0)),
    ]
    return torch.stack(standing, 1)


def log_share(part: Tensor, whole: Tensor, power: int) -> Tensor:
    """Log of one distance over another, from summed costs (see geometry); bounded."""
    return ((part.clamp(min=1e-12) / whole.clamp(min=1e-12)).log() / max(power, 1)).clamp(-6, 3)


def log_scaled(count: Tensor, most: int) -> Tensor:
    """0 for 0, 1 for `most` and beyond."""
    return (torch.log1p(count.float()) / math.log1p(most)).clamp(max=1)
