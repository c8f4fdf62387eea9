"""Square attack's proposals (Andriushchenko et al. 2020, https://arxiv.org/abs/1912.00049) on the patch grid, any rank.

A box of patches at a random place takes one random palette entry; the box shrinks on the paper's schedule; a proposal is
accepted if it is better. The search starts from the clean input, because rlab measures the distortion, and goes on after
its first flip (see `rlab.policies.ball`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.env import State, Task
from rlab.core.rng import uniform
from rlab.errors import OptionError
from rlab.policies.ball import BallSearch
from rlab.storage.config import named_keywords

_HALVE_AT = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # of 10,000 steps: the share of patches halves at each


@named_keywords
@dataclass(frozen=True)
class Square(BallSearch):
    """Square attack on the patch grid; its first boxes cover `share` of all patches (the paper's p)."""

    share: float = 0.1

    def __post_init__(self) -> None:
        if not isinstance(self.share, int | float) or not 0 < self.share <= 1:
            raise OptionError(
                f"expected share, the part of all patches that a box covers, above 0 and up to 1, got {self.share!r}"
            )

    def move(self, assignment: Tensor, state: State, task: Task) -> Tensor:
        rank = len(task.grid.shape)
        draw = uniform(state.seed, state.step, rank + 1)
        side = share_at(self.share, state.step, task.budget) ** (1 / rank)
        inside = torch.ones(len(state), len(task.grid), dtype=torch.bool, device=draw.device)
        axes = [torch.arange(count, device=draw.device) for count in task.grid.shape]
        for axis, place in enumerate(torch.meshgrid(*axes, indexing="ij")):
            position, count = place.flatten(), task.grid.shape[axis]
            length = (side * count).round().clamp(1, count)
            first = (draw[:, axis] * (count - length + 1)).floor()
            inside &= (position >= first[:, None]) & (position < (first + length)[:, None])
        entry = 1 + (draw[:, rank:] * task.entries).long()
        return torch.where(inside, entry, assignment)


def share_at(share: float, step: Tensor, budget: int) -> Tensor:
    """The paper's schedule: the share of patches in a box at each step (n,), halved at fixed shares of the budget."""
    scaled = step * (10_000 / budget)
    halved = sum((scaled > at).to(torch.float32) for at in _HALVE_AT)
    return share / 2**halved
