"""The explanation that an attack itself gives: the few patches that had to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from rlab.data.batch import Batch
from rlab.explanation.base import ExplanationTask, Method, hiding_filter
from rlab.explanation.credit import fine_grid
from rlab.explanation.maps import each
from rlab.filters.palette import refuse_pixels
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import AttackOptions
from rlab.storage.config import check

BUDGET = 1000


@dataclass(frozen=True)
class MinimalMask(Method):
    """The patches that had to change for the decision to flip, without those that cleanup restored.

    Defaults: patches and a blur as in the other methods, and 1,000 queries. It is not scored: a set of patches that flips the
    model is no ranking of what the decision depends on.
    """

    name = "mask"
    flips = True
    scored = False
    attack: AttackOptions = field(default_factory=lambda: check(AttackOptions, {}))

    @classmethod
    def of(cls, options: Mapping[str, Any], attack: AttackOptions) -> Method:
        checked = check(AttackOptions, dict(attack) | dict(options), "the method 'mask'")
        refuse_pixels(checked.palette, "the method 'mask'")
        return cls(checked)

    def most(self, size: tuple[int, ...]) -> int:
        return 1 + (self.attack.budget or BUDGET)

    def draw(self, task: ExplanationTask) -> Tensor:
        """1 in the set, 0 elsewhere; zeros if the model did not flip within the budget."""
        batch = Batch(x=task.x0.cpu(), y=task.labels.cpu(), bounds=task.bounds)
        own = {"palette": (hiding_filter(task.size),), "patch": fine_grid(task.size).patch, "budget": BUDGET}
        own = {name: value for name, value in own.items() if getattr(self.attack, name) is None}
        attack = self.attack.model_copy(update={**own, "seed": int(task.seeds[0])}).build(batch)
        if "palette" in own:  # our own filter needs no check, which costs more than the attack on large inputs
            chunk = attack.search(task.victim, batch)
            result = AttackResult.of(attack.verify(chunk, chunk.perturbed), chunk.perturbed)
        else:
            result = run_attack(attack, task.victim, batch)
        task.meter.counts += result.queries
        return (result.masks & each(result.succeeded, result.masks)).float().to(task.x0.device)

    def cut(self, extent: Tensor, rule: str) -> Tensor:
        return extent > 0
