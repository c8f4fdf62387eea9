"""A smooth field of influence from questions about random sets of patches.

Every question hides one random set and gives one equation: the class's score is a constant minus the field summed over
what was hidden. Under a Gaussian-process prior the field solves all of them at once, which takes far fewer questions
than averaging masks does; sets over several grids share the one field.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.core.rng import uniform
from rlab.explanation.base import Case

ROWS = 512  # that are made at once
LEAST = -12.0  # log-probabilities below are all the same to us


@dataclass(frozen=True)
class Prior:
    """What a field looks like before any answer."""

    cells: PatchGrid
    reach: float  # how far influence carries, as a share of each axis
    noise: float = 2.0  # what sets do to each other beyond adding up, against the variance that the field explains

    def kernel(self, device: torch.device) -> Tensor:
        """(q, q), one at equal places."""
        at = torch.tensor(
            [
                [
                    (cut.start + cut.stop) / 2 / length
                    for cut, length in zip(self.cells.box(i), self.cells.size, strict=True)
                ]
                for i in range(len(self.cells))
            ],
            dtype=torch.float64,
            device=device,
        )
        return torch.exp(-0.5 * (torch.cdist(at, at) / self.reach) ** 2)


def random_sets(seeds: Tensor, first: int, count: int, patches: int) -> Tensor:
    """(n, count, p) bool: pairs of a set and its complement; a set holds a fifth to four fifths of the patches."""
    pairs = torch.arange(first, first + (count + 1) // 2, device=seeds.device)
    draw = uniform(seeds.repeat_interleave(len(pairs)), pairs.repeat(len(seeds)), patches + 1)
    chosen = draw[:, 1:] < 0.2 + 0.6 * draw[:, :1]
    both = torch.stack([chosen, ~chosen], 1).view(len(seeds), -1, patches)
    return both[:, :count]


def ask_sets(case: Case, bank: Tensor, grid: PatchGrid, sets: Tensor) -> Tensor:
    """The class's score (n, m) with each set (n, m, p) hidden, that is copied from the bank's entry 1."""
    found = torch.empty(sets.shape[:2], device=sets.device)
    every = torch.arange(len(case), device=sets.device)
    for some in torch.arange(sets.shape[1], device=sets.device).split(max(1, ROWS // len(case))):
        samples = every.repeat_interleave(len(some))
        x = render(bank[samples], sets[:, some].flatten(0, 1).long(), grid)
        found[:, some] = case.belief(case.ask(x, samples), samples).view(len(case), -1)
    return found


def solve_field(hidden: Tensor, scores: Tensor, prior: Prior) -> Tensor:
    """Shares of cells hidden (n, m, q), scores (n, m) -> the field (n, q): what hiding each cell costs the class."""
    kernel = prior.kernel(hidden.device)
    found = []
    for parts, answers in zip(hidden, scores, strict=True):
        a = parts.double() - parts.double().mean(0)
        y = answers.double().clamp(min=LEAST)
        ak = a @ kernel
        c = ak @ a.T
        size = c.diagonal().mean().clamp(min=1e-12)
        c.diagonal().add_(prior.noise * size)
        found.append(-(ak.T @ torch.linalg.solve(c, y - y.mean())).float())
    return torch.stack(found)
