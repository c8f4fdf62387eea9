"""Baselines that need answers alone, for inputs of any rank: RISE, occlusion, and a bump in the middle."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from rlab.core.grid import PatchGrid
from rlab.core.rng import uniform
from rlab.explanation.base import Case, Method
from rlab.explanation.maps import LINEAR, each, even_grid, raise_patches

ROWS = 1024  # that are made at once


def plain_fill(x0: Tensor) -> Tensor:
    """(n, c, *size) -> (n, c, 1, ...): each sample's own mean by channel, what is shown where the input is hidden."""
    return x0.flatten(2).mean(2).view(*x0.shape[:2], *(1,) * (x0.dim() - 2))


@dataclass(frozen=True)
class Rise(Method):
    """The mean of random soft masks, each weighed by the class's probability when only the mask is shown.

    Petsiuk et al. 2018, https://arxiv.org/abs/1806.07421: 8,000 masks of 7 x 7 cells, each shown with chance .5.
    """

    name = "rise"
    masks: int = 8000
    cells: int = 7
    chance: float = 0.5

    def draw(self, case: Case) -> Tensor:
        total, fill = torch.zeros(len(case), *case.size, device=case.x0.device), plain_fill(case.x0)
        every = torch.arange(len(case), device=case.x0.device)
        at_once = max(1, ROWS // len(case))
        for first in range(0, self.masks, at_once):
            steps = torch.arange(first, min(first + at_once, self.masks), device=case.x0.device)
            samples = every.repeat_interleave(len(steps))
            shown = self._masks(case.seeds[samples], steps.repeat(len(case)), case.size)
            x = fill[samples] + shown[:, None] * (case.x0 - fill)[samples]
            sure = case.victim.probabilities(case.belief(case.ask(x, samples), samples))
            total.index_add_(0, samples, shown * each(sure, shown))
        return total / (self.masks * self.chance)

    def _masks(self, seeds: Tensor, steps: Tensor, size: tuple[int, ...]) -> Tensor:
        """(m, *size) in [0, 1]: cells drawn by chance, made smooth, moved by a random part of a cell."""
        grid = even_grid(size, self.cells)
        draw = uniform(seeds, steps, len(grid) + len(size))
        coarse = (draw[:, : len(grid)] < self.chance).float().view(-1, 1, *grid.shape)
        wide = tuple((count + 1) * side for count, side in zip(grid.shape, grid.patch, strict=True))
        mask = interpolate(coarse, size=wide, mode=LINEAR[len(size) - 1], align_corners=False)[:, 0]
        for axis, (length, side) in enumerate(zip(size, grid.patch, strict=True)):
            shift = (draw[:, len(grid) + axis] * side).long()
            at = each(shift, mask) + torch.arange(length, device=mask.device).view(
                *(-1 if a == axis else 1 for a in range(-1, len(size)))
            )
            shape = list(mask.shape)
            shape[axis + 1] = length
            mask = mask.gather(axis + 1, at.expand(shape))
        return mask


@dataclass(frozen=True)
class Occlusion(Method):
    """How much the class's log-probability drops when one patch is hidden.

    Zeiler and Fergus 2014, https://arxiv.org/abs/1311.2901.
    """

    name = "occlusion"
    along: int = 14  # patches on every axis

    def draw(self, case: Case) -> Tensor:
        grid, fill = even_grid(case.size, self.along), plain_fill(case.x0)
        every = torch.arange(len(case), device=case.x0.device)
        start = case.belief(case.clean, every)
        drop = torch.zeros(len(case), len(grid), device=case.x0.device)
        at_once = max(1, ROWS // len(case))
        for first in range(0, len(grid), at_once):
            patches = torch.arange(first, min(first + at_once, len(grid)), device=case.x0.device)
            samples, hidden = every.repeat_interleave(len(patches)), patches.repeat(len(case))
            scores = case.ask(hide(case.x0[samples], fill[samples], grid, hidden), samples)
            drop[samples, hidden] = start[samples] - case.belief(scores, samples)
        return raise_patches(drop, grid)


def hide(x: Tensor, fill: Tensor, grid: PatchGrid, patch: Tensor) -> Tensor:
    """x (m, c, *size) with one patch (m,) of each row filled."""
    chosen = torch.zeros(len(x), len(grid), device=x.device).scatter_(1, patch[:, None], 1.0)
    return torch.where(grid.expand(chosen)[:, None] > 0, fill, x)


@dataclass(frozen=True)
class Middle(Method):
    """A Gaussian in the middle of the input. It never asks the model: what a map must beat to be worth anything."""

    name = "middle"
    width: float = 0.25  # standard deviation as a share of each axis

    def draw(self, case: Case) -> Tensor:
        bump = torch.ones((), device=case.x0.device)
        for length in case.size:
            at = (torch.arange(length, device=case.x0.device) + 0.5) / length - 0.5
            bump = bump[..., None] * torch.exp(-0.5 * (at / self.width) ** 2)
        return bump.expand(len(case), *case.size).clone()
