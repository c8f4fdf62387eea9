"""What an attack itself says: the few patches that had to change, and what an agent expects before it asks anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from rlab.core import defaults
from rlab.core.env import AttackEnv, State, Task
from rlab.core.goals import Untargeted
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation.base import Case, Method
from rlab.explanation.blank import blank_bank, default_blank
from rlab.explanation.maps import even_grid, raise_patches
from rlab.filters.palette import unit_scale
from rlab.options import make_attack
from rlab.policies import parse_policy
from rlab.policies.base import Policy

FINE = (32, 14, 6)  # patches along an axis, by rank from 1


@runtime_checkable
class Foresees(Protocol):
    """A policy that can say what every change of every patch is worth before any query."""

    def values(self, state: State, task: Task) -> Tensor:
        """(n, f + 1, p)."""


@dataclass(frozen=True)
class MinimalMask(Method):
    """The patches that had to change for the decision to flip, after those that were not needed were given back."""

    name = "mask"
    policy: str = defaults.POLICY
    palette: tuple[str, ...] | None = None  # None hides patches as the other methods do
    budget: int = 1000

    def draw(self, case: Case) -> Tensor:
        """1 in the set, 0 elsewhere; zeros where the model did not flip within the budget."""
        batch = Batch(x=case.x0.cpu(), y=case.labels.cpu(), bounds=case.bounds)
        attack = make_attack(
            batch,
            palette=self.palette or (default_blank(case.size),),
            patch=even_grid(case.size, FINE[len(case.size) - 1]).patch,
            policy=self.policy,
            budget=self.budget,
        )
        seed = int(case.seeds[0])  # our own blank needs no check, which would cost more than the attack on large inputs
        result = attack(case.victim, batch, seed) if self.palette else attack.attack_chunk(case.victim, batch, seed, 0)
        case.meter.counts += result.queries
        return (result.masks & result.succeeded.view(-1, *(1,) * len(case.size))).float().to(case.x0.device)

    def cut(self, extent: Tensor, rule: str) -> Tensor:
        return extent > 0


@dataclass(frozen=True)
class Instant(Method):
    """What a learned agent expects of every patch when it has seen nothing but the input: no query beyond the first."""

    policy: str | Policy = "auto"
    name = "instant"

    def draw(self, case: Case) -> Tensor:
        rank = len(case.size)
        grid = even_grid(case.size, FINE[rank - 1])
        policy = parse_policy(self.policy).suited(grid)
        if not isinstance(policy, Foresees):
            raise InputError(
                f"the method 'instant' needs a learned agent that values patches, and {type(policy).__name__} has no "
                "values: pass an agent's file"
            )
        task = Task(grid, 1, Untargeted(), budget=defaults.BUDGETS["image"])
        env = AttackEnv(case.meter, task)
        rows = torch.arange(len(case), device=case.x0.device)
        bank = blank_bank(case.x0, case.bounds, case.seeds.tolist())
        scale = unit_scale(case.x0, case.bounds)[1].flatten()
        state = env.start(case.labels, rows, case.seeds, bank, scale, case.clean)
        state = replace(state, memory=policy.begin(state, task))
        return raise_patches(policy.values(state, task)[:, 1:].amax(1).float(), grid)
