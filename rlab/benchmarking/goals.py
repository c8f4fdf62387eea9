"""Goals of a benchmark's searches, each made of the attack's own goal."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.goals import Goal, Targeted, Untargeted

_DEEP = 20.0  # log-probability beyond which more confidence does not count
_LOST = 100.0  # log-probability added if the model recovered


def errs(goal: Goal) -> bool:
    """Whether reaching the goal means a wrong prediction."""
    return isinstance(goal, Untargeted) or (isinstance(goal, Targeted) and isinstance(goal.target, int))


@dataclass(frozen=True)
class WrappedGoal(Goal):
    """Samples, labels and name are those of `goal`; the margin is the subclass's own."""

    goal: Goal

    def __str__(self) -> str:
        return str(self.goal)

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.goal.correct(scores, labels)

    def check(self, labels: Tensor, classes: int) -> None:
        self.goal.check(labels, classes)


@dataclass(frozen=True)
class WithMargin(WrappedGoal):
    """`goal` with a lead, because other hardware and batch sizes round differently and must see the same error."""

    lead: float

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.goal.margin(scores, labels) + self.lead

    def alternatives(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.goal.alternatives(scores, labels) + self.lead


@dataclass(frozen=True)
class DeeperError(WrappedGoal):
    """A clearer error while `goal` holds."""

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        margin = self.goal.margin(scores, labels)
        depth = margin + _DEEP
        return torch.where(margin < 0, depth, depth.clamp(min=0) + margin + _LOST)
