"""Several models as one victim: a sample counts only if it fools every model, so it transfers by construction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.goals import Goal
from rlab.errors import ModelError
from rlab.victims.base import Victim
from rlab.victims.meter import Charge


class Agreement(Victim):
    """Scores (b, m * k) of m models, side by side. Every model answers, and counts, every input."""

    def __init__(self, members: Mapping[str, Victim]) -> None:
        self.members = dict(members)
        first = next(iter(self.members.values()))
        super().__init__(bounds=first.bounds)
        self.device, self._phase = first.device, ""
        for name, member in self.members.items():
            if member.multilabel or member.bounds != first.bounds or member.device != first.device:
                raise ModelError(
                    f"an agreement needs models with one label per sample, equal bounds and the same device, but {name!r} differs "
                    "from the first: give all models the same bounds and device"
                )

    def _about(self) -> str:
        return f"the agreement of {', '.join(self.members)}"

    def _count(self, rows: Tensor, times: int = 1, *, phase: str, charge: Charge | None) -> None:
        super()._count(rows, times, phase=phase, charge=charge)
        self._phase = phase  # the models count the same rows under it

    def _predict(self, x: Tensor) -> Tensor:
        answers = [member(x, self._phase) for member in self.members.values()]
        counts = {name: answer.shape[1] for name, answer in zip(self.members, answers, strict=True)}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise ModelError(f"expected models with the same number of classes, got {listed}: name models of one task")
        return torch.cat(answers, 1)

    def _scores(self, answer: Tensor) -> Tensor:
        return answer  # log-probabilities already


@dataclass(frozen=True)
class EveryModel(Goal):
    """`goal` holds for all `models` models: the margin is that of the most robust one."""

    goal: Goal
    models: int

    def __str__(self) -> str:
        return str(self.goal)

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return torch.stack([self.goal.margin(part, labels) for part in scores.chunk(self.models, 1)]).amax(0)

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        return torch.stack([self.goal.correct(part, labels) for part in scores.chunk(self.models, 1)]).all(0)

    def check(self, labels: Tensor, classes: int) -> None:
        self.goal.check(labels, classes // self.models)
