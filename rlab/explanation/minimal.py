"""What an attack itself says: the few patches that had to change, and what an agent expects before it asks anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rlab.core import defaults
from rlab.core.env import AttackEnv, Task
from rlab.core.goals import Untargeted
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation.base import ExplanationTask, Method, hiding_bank, hiding_filter
from rlab.explanation.credit import fine_grid
from rlab.explanation.maps import each, raise_patches
from rlab.filters.palette import refuse_pixels, unit_scale
from rlab.options import AttackOptions
from rlab.policies import parse_policy
from rlab.policies.base import Policy
from rlab.policies.belief import BeliefPolicy
from rlab.runs.config import check

BUDGET = 1000


@dataclass(frozen=True)
class MinimalMask(Method):
    """The patches that had to change for the decision to flip, after those that were not needed were given back.

    Where the attack names none of them: patches as fine as the other methods', hidden as they do, and 1,000 queries.
    """

    name = "mask"
    flips = True
    attack: AttackOptions = field(default_factory=lambda: check(AttackOptions, {}))

    @classmethod
    def of(cls, options: Mapping[str, Any], attack: AttackOptions) -> Method:
        checked = check(AttackOptions, dict(attack) | dict(options), "the method 'mask'")
        refuse_pixels(checked.palette, "the method 'mask'")
        return cls(checked)

    def most(self, size: tuple[int, ...]) -> int:
        return 1 + (self.attack.budget or BUDGET)

    def draw(self, task: ExplanationTask) -> Tensor:
        """1 in the set, 0 elsewhere; zeros where the model did not flip within the budget."""
        batch = Batch(x=task.x0.cpu(), y=task.labels.cpu(), bounds=task.bounds)
        own = {"palette": (hiding_filter(task.size),), "patch": fine_grid(task.size).patch, "budget": BUDGET}
        own = {name: value for name, value in own.items() if getattr(self.attack, name) is None}
        attack = self.attack.model_copy(update={**own, "seed": int(task.seeds[0])}).build(batch)
        if "palette" in own:  # needs no check, which would cost more than the attack on large inputs
            chunk = attack.search(task.victim, batch)
            result = attack.verify(chunk, chunk.perturbed)
        else:
            result = attack(task.victim, batch)
        task.meter.counts += result.queries
        return (result.masks & each(result.succeeded, result.masks)).float().to(task.x0.device)

    def cut(self, extent: Tensor, rule: str) -> Tensor:
        return extent > 0


@dataclass(frozen=True)
class Instant(Method):
    """What a learned agent expects of every patch when it has seen nothing but the input: no query beyond the first."""

    policy: str | Policy[Any] = defaults.POLICY
    name = "instant"
    flips = True

    def most(self, size: tuple[int, ...]) -> int:
        return 1

    def draw(self, task: ExplanationTask) -> Tensor:
        grid = fine_grid(task.size)
        policy = parse_policy(self.policy)
        if not isinstance(policy, BeliefPolicy):
            kind = type(policy).__name__
            raise InputError(
                f"the method 'instant' needs a learned agent, and {kind} has no values: pass an agent's file"
            )
        env = AttackEnv(task.meter, Task(grid, 1, Untargeted(), budget=BUDGET))
        rows = torch.arange(len(task), device=task.x0.device)
        bank = hiding_bank(task.x0, task.bounds, task.seeds.tolist())
        scale = unit_scale(task.x0, task.bounds)[1].flatten()
        state = env.start(task.labels, rows, task.seeds, bank, scale, task.clean)
        return raise_patches(policy.values(policy.begin(state, env.task))[:, 1:].amax(1).float(), grid)
