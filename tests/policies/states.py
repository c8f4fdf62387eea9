"""Small states for the tests of policies: one value a patch, so that a proposal is easy to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.env import AttackEnv, Proposal, State, Task
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.policies.base import Policy

Margin = Callable[[Tensor], Tensor]  # inputs (n, *size) -> margins (n,)


class Walk:
    """A policy stepping through an environment whose margin is a function of the input; records every proposal."""

    def __init__(
        self, policy: Policy[Any], grid: PatchGrid, margin: Margin, entries: int = 2, n: int = 1, budget: int = 99
    ):
        assert grid.patch == (1,) * grid.rank  # entry f then shows as the value f
        self.policy, self.margin = policy, margin
        self.env = AttackEnv(self._ask, Task(grid, entries, Untargeted(), budget))
        bank = torch.arange(entries + 1.0).view(1, -1, 1, *(1,) * grid.rank).repeat(n, 1, 1, *grid.size)
        y, rows = torch.zeros(n, dtype=torch.int64), torch.arange(n)
        scores = self._ask(bank[:, 0], "search", rows)
        self.state = self.env.start(y, rows, rows, bank, torch.ones(n), scores)
        self.memory: Any = policy.begin(self.state, self.env.task)
        self.proposals: list[Proposal[Rows]] = []

    def _ask(self, x: Tensor, phase: str, samples: Tensor, assignment: Tensor | None = None) -> Tensor:
        margin = self.margin(x[:, 0])
        return torch.stack([margin, torch.zeros_like(margin)], 1)

    def step(self) -> State:
        """One proposal and its query; returns the state before it."""
        before = self.state
        proposal = self.policy.propose(before, self.memory, self.env.task)
        self.proposals.append(proposal)
        self.state, _ = self.env.step(before, proposal)
        self.memory = self.policy.observe(self.state, proposal.memory, self.env.task)
        return before


def flat(x: Tensor) -> Tensor:
    """Nothing matters."""
    return torch.ones(len(x))
