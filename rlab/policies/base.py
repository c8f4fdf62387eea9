"""A policy learns from the last answer and proposes the next assignment. It never sees the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from rlab.core.batched import NoMemory, Rows
from rlab.core.env import Accept, Proposal, State, Task, edit, propose

S = TypeVar("S", bound=Rows)


class Policy(ABC, Generic[S]):
    """`S` is the policy's own memory, which travels with the rows from step to step."""

    needs: ClassVar[tuple[str, ...]] = ()  # what a comparison lists beside scores and a palette
    reduces: ClassVar[bool] = False  # whether it continues after the first flip, towards smaller distances

    @abstractmethod
    def begin(self, state: State, task: Task) -> S:
        """The memory before the first proposal."""

    @abstractmethod
    def propose(self, state: State, memory: S, task: Task) -> Proposal[S]:
        """One proposal for every row. Draw random numbers with `rlab.core.rng` from the row's seed and step only."""

    def observe(self, state: State, memory: S, task: Task) -> S:
        """The memory with the last answer in it. The loop calls this before every proposal but the first."""
        return memory

    def fewer(self, state: State, memory: S, task: Task, most: Tensor) -> Tensor:
        """For each flip an assignment (n, p) with fewer patches that may flip within the distances `most` (n,), or zeros."""
        return torch.zeros_like(state.assignment)

    def __repr__(self) -> str:
        return type(self).__name__

    def by_labels(self) -> Policy[Any] | None:
        """The search to use if the model returns labels only; None if there is none."""
        return None

    def contribution(self, state: State, memory: S, task: Task) -> Tensor:
        """(n, p): how much each distorted patch of a flip lowers the margin; cleanup restores the smallest first.

        Unless a policy knows better, the drop is shared by the squares of the changes.
        """
        strength = task.grid.collect((state.x - state.x0).square())
        return strength * ((state.margin0 - state.margin) / strength.sum(1).clamp(min=1e-30))[:, None]

    def regions(self, task: Task) -> Sequence[Tensor]:
        """Levels of regions, each (p,), coarse first, that cleanup restores whole before single patches."""
        return ()

    def least_steps(self, task: Task) -> int:
        """Queries that it needs before it can change anything."""
        return 1


class MemorylessPolicy(Policy[NoMemory]):
    """A policy that needs the state alone."""

    def begin(self, state: State, task: Task) -> NoMemory:
        return NoMemory()


def act(state: State, add: Tensor, restore: Tensor) -> Proposal[NoMemory]:
    """The dual action as a proposal that is accepted if better; see `rlab.core.env.edit`."""
    return propose(edit(state.assignment, add, restore), Accept.IF_BETTER)


def legal_adds(assignment: Tensor, entries: int) -> Tensor:
    """assignment (n, p) -> (n, f + 1, p) bool: entries that would change the patch; entry 0 restores it."""
    return assignment[:, None] != torch.arange(entries + 1, device=assignment.device)[:, None]
