"""How a perturbation of free values becomes a proposal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from rlab.core.batched import Rows
from rlab.core.env import Accept, Proposal, State, Task
from rlab.core.vectors import wide
from rlab.filters.palette import Round

S = TypeVar("S", bound=Rows)


@dataclass(frozen=True)
class Values:
    """The values that inputs may have: within `bounds` and, if they are rounded, what `rounded` returns."""

    bounds: tuple[float, float]
    rounded: Round | None = None

    @property
    def step(self) -> float:
        """The distance between two neighbouring values, as a share of the range; 0 if they are not rounded."""
        return 0.0 if self.rounded is None else 1 / 255


def perturb(state: State, delta: Tensor, values: Values) -> tuple[Tensor, Tensor]:
    """delta (n, c, *size) in units of L2 -> the nearest allowed input, and the perturbation that is left."""
    scale = wide(state.scale, delta)
    x = (state.x0 + scale * delta).clamp(*values.bounds)
    x = x if values.rounded is None else values.rounded(x)
    return x, (x - state.x0) / scale


def propose_values(state: State, x: Tensor, memory: S, task: Task) -> Proposal[S]:
    """The input x (n, c, *size), accepted if it flips at a smaller distance; the assignment marks the changed patches."""
    changed = (task.grid.collect((x != state.x0).to(torch.float32)) > 0).to(torch.int64)
    return Proposal(changed, torch.full_like(state.sample, Accept.IF_NEARER), memory, x)
