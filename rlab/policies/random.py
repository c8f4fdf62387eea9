"""One random change a step: a distortion anywhere, or a restore where one is. The floor every agent has to beat."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rlab.core.env import Proposal, State, Task
from rlab.core.rng import uniform
from rlab.policies.base import Policy, act, legal_adds


@dataclass(frozen=True)
class RandomPolicy(Policy):
    def propose(self, state: State, task: Task) -> Proposal:
        legal = legal_adds(state).flatten(1)
        choice = torch.where(legal, uniform(state.seed, state.step, legal.shape[1]), -1.0).argmax(1, keepdim=True)
        patches = len(task.grid)
        is_restore = choice < patches  # entry 0 comes first
        return act(state, torch.where(is_restore, -1, choice), torch.where(is_restore, choice, -1))
