"""One random change per step: a distortion anywhere, or a restore of a distorted patch. Every agent has to beat it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rlab.core.batched import NoMemory
from rlab.core.env import Proposal, State, Task
from rlab.core.rng import uniform
from rlab.policies.base import MemorylessPolicy, act, legal_adds
from rlab.storage.config import named_keywords


@named_keywords
@dataclass(frozen=True)
class Random(MemorylessPolicy):
    """One random change per query; every other policy has to beat it."""

    def propose(self, state: State, memory: NoMemory, task: Task) -> Proposal[NoMemory]:
        legal = legal_adds(state).flatten(1)
        choice = torch.where(legal, uniform(state.seed, state.step, legal.shape[1]), -1.0).argmax(1, keepdim=True)
        patches = len(task.grid)
        is_restore = choice < patches  # entry 0 comes first
        return act(state, torch.where(is_restore, -1, choice), torch.where(is_restore, choice, -1))
