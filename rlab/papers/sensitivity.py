"""The dual-action agent's state: a one-level sensitivity analysis, and what each kind of sweep measures of it.

An effect is the drop of the true class's log-odds by one change: a filter added to a clean patch, or a distorted patch restored.
Shapes: n rows, f filters, p patches; entry 0 restores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.env import State, Task
from rlab.core.goals import Below, Goal, Untargeted
from rlab.core.rng import uniform

CELL, WHOLE = 8, 6  # numbers that describe one change, and the sample as a whole
Confidence = Literal["log_odds", "probability"]
Sweep = Literal["full", "one_filter"] | float  # everything, one filter in turn, or a share of the patches in turn


@dataclass(frozen=True)
class Analysis(Rows):
    """The sensitivity analysis of n samples, as far as it has come."""

    effect: Tensor  # (n, f + 1, p) drop of the true class's log-odds by each change, when it was last measured
    fresh: Tensor  # (n, f + 1, p) 1 once measured, halved by every step since, 0 if never
    todo: Tensor  # (n, f + 1, p) bool: changes still to be measured before the next step
    cost: Tensor  # (n, f + 1, p) L2 of each change
    asked: Tensor  # (n,) the change being measured, entry * p + patch; -1 for a step
    turn: Tensor  # (n,) steps so far

    @classmethod
    def start(cls, state: State, task: Task) -> Analysis:
        square = (state.bank - state.bank[:, :1]).square()
        cost, turn = task.grid.collect(square).sqrt() / state.scale[:, None, None], torch.zeros_like(state.step)
        return cls(torch.zeros_like(cost), torch.zeros_like(cost), cost > cost, cost, turn - 1, turn)

    def read(self, drop: Tensor, where: Tensor) -> Analysis:
        """With effects `drop`, measured at the changes `where`, (n, f + 1, p) both."""
        effect = torch.where(where, drop.nan_to_num(0.0, 0.0, 0.0), self.effect)
        return replace(self, effect=effect, fresh=torch.where(where, 1.0, self.fresh), todo=self.todo & ~where)


def log_odds(goal: Goal, scores: Tensor, y: Tensor) -> Tensor:
    """(n,): log p / (1 - p) of the true class, exact near 1; other goals have their margin in its place."""
    if not isinstance(goal, Untargeted | Below):
        return goal.margin(scores, y)
    others = scores.scatter(1, y[:, None], -torch.inf).logsumexp(1)
    return scores.gather(1, y[:, None]).squeeze(1) - others


def dilution(before: Tensor, after: Tensor, first: Tensor, confidence: Confidence) -> Tensor:
    """(n,): the fall from log-odds `before` to `after`, as a share of the `first` ones, at most 1; or that of the probability."""
    if confidence == "probability":
        return before.sigmoid() - after.sigmoid()
    return ((before - after) / first.clamp(min=1)).clamp(-1, 1)


def changes(assignment: Tensor, entries: int, restore: bool) -> Tensor:
    """(n, f + 1, p) bool: what a step may do: add any filter to a clean patch, restore a distorted one."""
    distorted = (assignment > 0)[:, None]
    return torch.cat([distorted & restore, (~distorted).expand(-1, entries, -1)], 1)


def plan(state: State, turn: Tensor, task: Task, sweep: Sweep, restore: bool) -> Tensor:
    """(n, f + 1, p) bool: the changes to measure before the step number `turn` (n,)."""
    legal, patches = changes(state.assignment, task.entries, restore), len(task.grid)
    if sweep == "full":
        return legal
    if sweep == "one_filter":
        entry = torch.arange(task.entries + 1, device=turn.device)
        return legal & ((entry == 1 + turn[:, None] % task.entries) | (entry == 0))[:, :, None]
    count = part_of(sweep, patches)
    order = uniform(state.seed, torch.zeros_like(turn), patches).argsort(1)  # each sample's own, the same in every step
    place = torch.empty_like(order).scatter_(1, order, torch.arange(patches, device=turn.device).expand_as(order))
    return legal & ((place - turn[:, None] * count) % patches < count)[:, None]


def part_of(sweep: Sweep, patches: int) -> int:
    return patches if isinstance(sweep, str) else max(1, round(sweep * patches))


@dataclass(frozen=True)
class View(Rows):
    """What the network sees."""

    cells: Tensor  # (n, f + 1, p, CELL)
    whole: Tensor  # (n, WHOLE)
    legal: Tensor  # (n, f + 1, p) bool


def observe(state: State, analysis: Analysis, task: Task, restore: bool) -> View:
    a, distorted = analysis, state.assignment > 0
    largest = a.effect.abs().amax((1, 2), keepdim=True).clamp(min=1e-6)
    unit = a.cost[:, 1:].mean((1, 2), keepdim=True).clamp(min=1e-9)
    cheap = a.effect / ((a.cost / unit).square() + 0.05)
    cheap = cheap / cheap.abs().amax((1, 2), keepdim=True).clamp(min=1e-6)
    entry = torch.arange(task.entries + 1, device=a.cost.device)[:, None]
    held = (state.assignment[:, None] == entry).to(a.cost.dtype)
    flags = (distorted[:, None].expand_as(held).to(held), (entry == 0).to(held).expand_as(held))
    cells = (a.effect / largest, a.effect.asinh(), cheap, a.fresh, (a.cost / unit).clamp(max=10), held, *flags)
    odds, sure = log_odds(task.goal, state.scores, state.y), state.scores.exp().clamp(0, 1)
    top = sure.topk(2, 1).values if sure.shape[1] > 1 else torch.cat([sure, 1 - sure], 1)
    spread = -(sure * state.scores.clamp(min=-30)).sum(1)
    far = state.distance / (unit.flatten() * len(task.grid) ** 0.5)
    whole = (odds.sigmoid(), odds.clamp(-30, 30).asinh(), top[:, 0] - top[:, 1], spread, distorted.float().mean(1), far)
    return View(torch.stack(cells, 3), torch.stack(whole, 1), changes(state.assignment, task.entries, restore))
