"""Tries every palette entry on every patch, then takes the best few: the sensitivity sweep of the original public code."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.env import Accept, Proposal, State, Task, edit
from rlab.core.feedback import Feedback
from rlab.errors import OptionError
from rlab.policies.base import Policy, legal_adds
from rlab.storage.config import named_keywords


@dataclass(frozen=True)
class SweepState(Rows):
    """How far the sweep has come."""

    next: Tensor  # (n, 1) the next action, entry * p + patch
    feedback: Feedback


@named_keywords
@dataclass(frozen=True)
class Greedy(Policy[SweepState]):
    """Tries every palette entry on every patch, then changes the best `take` patches; every try is a query and counts."""

    take: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.take, int) or self.take < 1:
            raise OptionError(f"expected take, the patches changed after a sweep, to be at least 1, got {self.take!r}")

    def begin(self, state: State, task: Task) -> SweepState:
        return SweepState(torch.zeros(len(state), 1, device=state.x.device), Feedback.begin(state))

    def observe(self, state: State, memory: SweepState, task: Task) -> SweepState:
        return replace(memory, feedback=memory.feedback.after(state))

    def contribution(self, state: State, memory: SweepState, task: Task) -> Tensor:
        return memory.feedback.of(state.assignment)

    def least_steps(self, task: Task) -> int:
        return task.entries * len(task.grid) + 1

    def propose(self, state: State, memory: SweepState, task: Task) -> Proposal[SweepState]:
        adds = legal_adds(state.assignment, task.entries)
        adds[:, 0] = False
        adds = adds.flatten(1)
        ahead = adds & (torch.arange(adds.shape[1], device=adds.device) >= memory.next)
        sweeping = ahead.any(1)
        look = ahead.to(torch.int8).argmax(1, keepdim=True)  # the first action that was not tried yet
        none = torch.full((len(state), 1), -1, device=adds.device)
        best = self._best(memory.feedback, adds, len(task.grid))
        add = torch.where(sweeping[:, None], torch.cat([look, none.expand(-1, best.shape[1] - 1)], 1), best)
        after = replace(memory, next=torch.where(sweeping[:, None], look + 1.0, 0.0))
        rule = torch.where(sweeping, Accept.IF_FLIPPED, Accept.ALWAYS)
        return Proposal(edit(state.assignment, add, none), rule, after)

    def _best(self, feedback: Feedback, adds: Tensor, patches: int) -> Tensor:
        """(n, take): the entries whose look ahead lowered the margin most, at most one per patch."""
        drop = torch.where(adds, feedback.drop.flatten(1), -torch.inf).view_as(feedback.drop)
        gain, entry = drop.max(1)
        top, patch = gain.topk(min(self.take, patches), 1)
        return torch.where(top > -torch.inf, entry.gather(1, patch) * patches + patch, -1)  # there may be fewer
