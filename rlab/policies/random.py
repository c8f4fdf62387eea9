"""One random change per step: a distortion anywhere, or a restore of a distorted patch. Every agent has to beat it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.env import State, Task, edit
from rlab.core.rng import uniform
from rlab.policies.ball import BallSearch
from rlab.policies.base import legal_adds
from rlab.storage.config import named_keywords


@named_keywords
@dataclass(frozen=True)
class Random(BallSearch):
    """One random change per query; every other policy has to beat it."""

    def move(self, assignment: Tensor, state: State, task: Task) -> Tensor:
        legal = legal_adds(assignment, task.entries).flatten(1)
        choice = torch.where(legal, uniform(state.seed, state.step, legal.shape[1]), -1.0).argmax(1, keepdim=True)
        is_restore = choice < len(task.grid)  # entry 0 comes first
        return edit(assignment, torch.where(is_restore, -1, choice), torch.where(is_restore, choice, -1))
