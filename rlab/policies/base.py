"""A policy reads the state and proposes the next assignment. It never sees the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from rlab.core.env import IF_BETTER, Memory, Proposal, State, Task, edit
from rlab.core.grid import PatchGrid


class Policy(ABC):
    """Whatever it must remember from step to step travels with the rows, in `State.memory`."""

    l2_penalty: float = 0.0  # of a unit of L2 (see rlab.core.env.Task), where the user names none
    by_labels: ClassVar[bool] = False  # whether it finds flips where the model tells only labels

    @property
    def reduces(self) -> bool:
        """Whether it goes on after the first flip by itself, towards less distance."""
        return False

    @abstractmethod
    def propose(self, state: State, task: Task) -> Proposal:
        """One proposal for every row; chance comes from `rlab.core.rng` by the row's seed and step, so rows stay independent."""

    def begin(self, state: State, task: Task) -> Memory:
        """(n, m): the memory rows start with; called once, before the first proposal."""
        return torch.zeros(len(state), 0, device=state.x.device)

    def contribution(self, state: State, task: Task) -> Tensor:
        """(n, p): how much of the margin a held patch is thought to take away; cleanup gives the least worthy back first."""
        return state.feedback.gather(1, state.assignment[:, None]).squeeze(1)

    def regions(self, task: Task) -> Sequence[Tensor]:
        """Levels of regions that cleanup gives back whole before single patches, coarse first, each (p,); none by default."""
        return ()

    def suited(self, grid: PatchGrid) -> Policy:
        """The policy for inputs cut like this: itself, unless it stands for several."""
        return self

    def least_steps(self, task: Task) -> int:
        """Queries it needs before it can change anything for good."""
        return 1


def act(state: State, add: Tensor, restore: Tensor) -> Proposal:
    """The dual action as a proposal that stays if it is better; see `rlab.core.env.edit`."""
    keep = torch.full((len(state),), IF_BETTER, device=add.device)
    return Proposal(edit(state.assignment, add, restore), keep, state.memory)


def legal_adds(state: State) -> Tensor:
    """(n, f + 1, p) bool: entries that would change the patch; entry 0 restores and is legal only where something is."""
    entries = torch.arange(state.bank.shape[1], device=state.assignment.device)
    return state.assignment[:, None] != entries[:, None]
