"""The attack that makes a benchmark, and the goal of its searches, made of the attack's own goal."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlab.benchmarking.config import BenchmarkOptions
from rlab.benchmarking.formats import Format
from rlab.core.attack import Attack
from rlab.core.goals import Goal, Targeted, Untargeted
from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.filters.palette import refuse_pixels

_DEEP = 20.0  # log-probability beyond which more confidence does not count
_LOST = 100.0  # log-probability added if the model recovered


def errs(goal: Goal) -> bool:
    """Whether reaching the goal means a wrong prediction."""
    return isinstance(goal, Untargeted) or (isinstance(goal, Targeted) and isinstance(goal.target, int))


@dataclass(frozen=True)
class LeadingGoal(Goal):
    """`goal` with a lead, because other hardware and batch sizes round differently and must see the same error.

    With `deeper`, a clearer error is better while the goal is reached.
    """

    goal: Goal
    lead: float
    deeper: bool = False

    def __str__(self) -> str:
        return str(self.goal)

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.goal.correct(scores, labels)

    def check(self, labels: Tensor, classes: int) -> None:
        self.goal.check(labels, classes)

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        margin = self.goal.margin(scores, labels) + self.lead
        depth = margin + _DEEP
        return torch.where(margin < 0, depth, depth.clamp(min=0) + margin + _LOST) if self.deeper else margin

    def alternatives(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.goal.alternatives(scores, labels) + self.lead


def stored_attack(batch: Batch, form: Format, options: BenchmarkOptions) -> Attack:
    """The declared attack with a bank rounded as the files round it, and a goal with a lead."""
    refuse_pixels(options.palette, "a benchmark")
    attack = options.build(batch)
    if not errs(attack.goal) or batch.y.shape[1:]:
        got = f"got goal {str(attack.goal)!r} and labels of shape {tuple(batch.y.shape)}"
        raise OptionError(f"expected goal untargeted or targeted:CLASS and one label per sample for a benchmark, {got}")
    own = attack.palette.rounded or (lambda x: x)
    palette = replace(attack.palette, rounded=lambda x: form.stored(own(x)))
    return replace(attack, palette=palette, goal=LeadingGoal(attack.goal, options.lead))
