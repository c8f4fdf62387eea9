"""Scores every palette entry on every patch, then takes the best few: the sensitivity sweep of the original public code."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.env import ALWAYS, LOOK, Proposal, State, Task
from rlab.errors import InputError
from rlab.policies.base import Policy, act, legal_adds


@dataclass(frozen=True)
class GreedyPolicy(Policy):
    """Every look ahead is a query and is counted. `take` patches are changed after each sweep."""

    take: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.take, int) or self.take < 1:
            raise InputError(f"expected take, the patches changed after a sweep, to be at least 1, got {self.take!r}")

    def begin(self, state: State, task: Task) -> Tensor:
        """The next action of the sweep, entry * p + patch."""
        return torch.zeros(len(state), 1, device=state.x.device)

    def least_steps(self, task: Task) -> int:
        return task.entries * len(task.grid) + 1

    def propose(self, state: State, task: Task) -> Proposal:
        adds = legal_adds(state)
        adds[:, 0] = False
        adds = adds.flatten(1)
        ahead = adds & (torch.arange(adds.shape[1], device=adds.device) >= state.memory)
        sweeping = ahead.any(1)
        look = ahead.to(torch.int8).argmax(1, keepdim=True)  # the first action not looked at yet
        none = torch.full((len(state), 1), -1, device=adds.device)
        best = self._best(state, adds, len(task.grid))
        add = torch.where(sweeping[:, None], torch.cat([look, none.expand(-1, best.shape[1] - 1)], 1), best)
        memory = torch.where(sweeping[:, None], look + 1.0, 0.0)
        keep = torch.where(sweeping, LOOK, ALWAYS)
        return Proposal(act(state, add, none).assignment, keep, memory)

    def _best(self, state: State, adds: Tensor, patches: int) -> Tensor:
        """(n, take): the entries whose look ahead dropped the margin most, no patch twice."""
        drop = torch.where(adds, state.feedback.flatten(1), -torch.inf).view_as(state.feedback)
        gain, entry = drop.max(1)
        top, patch = gain.topk(min(self.take, patches), 1)
        return torch.where(top > -torch.inf, entry.gather(1, patch) * patches + patch, -1)  # fewer may be left
