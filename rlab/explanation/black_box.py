"""Baselines that need only scores, for inputs of any rank: RISE, occlusion, and a bump in the middle."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from rlab.core.rng import uniform
from rlab.errors import OptionError
from rlab.explanation.base import ExplanationTask, Method, mean_fill, removed
from rlab.explanation.maps import LINEAR, each, even_grid, raise_patches


@dataclass(frozen=True)
class Rise(Method):
    """The mean of random soft masks, weighted by the class's probability when only the mask shows.

    Petsiuk et al. 2018, https://arxiv.org/abs/1806.07421: 8,000 masks of 7 x 7 cells, each visible with probability 0.5.
    """

    name = "rise"
    masks: int = 8000
    cells: int = 7
    chance: float = 0.5
    remove: str = "mean"  # or 'blur', 'noise', a filter with its severity; the paper uses a constant

    def __post_init__(self) -> None:
        if not 0 < self.chance < 1:
            raise OptionError(f"expected chance of the method 'rise' above 0 and below 1, got {self.chance}")

    def most(self, size: tuple[int, ...]) -> int:
        return 1 + self.masks

    def draw(self, task: ExplanationTask) -> Tensor:
        total, fill = torch.zeros(len(task), *task.size, device=task.x0.device), removed(task, self.remove)
        for samples, steps in task.pairs(self.masks):
            visible = self._masks(task.seeds[samples], steps, task.size)
            total.index_add_(0, samples, visible * each(task.shown(visible, fill, samples), visible))
        return total / (self.masks * self.chance)

    def _masks(self, seeds: Tensor, steps: Tensor, size: tuple[int, ...]) -> Tensor:
        """(m, *size) in [0, 1]: random cells, smoothed and shifted by a random part of a cell."""
        grid = even_grid(size, self.cells)
        draw = uniform(seeds, steps, len(grid) + len(size))
        coarse = (draw[:, : len(grid)] < self.chance).float().view(-1, 1, *grid.shape)
        wide = tuple((count + 1) * side for count, side in zip(grid.shape, grid.patch, strict=True))
        mask = interpolate(coarse, size=wide, mode=LINEAR[len(size) - 1], align_corners=False)[:, 0]
        for axis, (length, side) in enumerate(zip(size, grid.patch, strict=True), 1):
            shift = (draw[:, len(grid) + axis - 1] * side).long()
            along = torch.arange(length, device=mask.device).view(-1, *(1,) * (len(size) - axis))
            shape = (*mask.shape[:axis], length, *mask.shape[axis + 1 :])
            mask = mask.gather(axis, (each(shift, mask) + along).expand(shape))
        return mask


@dataclass(frozen=True)
class Occlusion(Method):
    """The drop of the class's log-probability when one patch is hidden.

    Zeiler and Fergus 2014, https://arxiv.org/abs/1311.2901.
    """

    name = "occlusion"
    along: int = 14  # patches per axis

    def most(self, size: tuple[int, ...]) -> int:
        return 1 + len(even_grid(size, self.along))

    def draw(self, task: ExplanationTask) -> Tensor:
        grid, fill, start = even_grid(task.size, self.along), mean_fill(task.x0), task.clean_score
        drop = torch.zeros(len(task), len(grid), device=task.x0.device)
        for samples, patches in task.pairs(len(grid)):
            hidden = torch.zeros(len(samples), len(grid), device=fill.device).scatter_(1, patches[:, None], 1.0)
            x = torch.where(grid.expand(hidden)[:, None] > 0, fill[samples], task.x0[samples])
            drop[samples, patches] = start[samples] - task.query(x, samples)
        return raise_patches(drop, grid)


@dataclass(frozen=True)
class Middle(Method):
    """A Gaussian in the middle of the input. It never looks at the model: any useful map must beat it."""

    name = "middle"
    width: float = 0.25  # standard deviation as a share of each axis

    def most(self, size: tuple[int, ...]) -> int:
        return 1

    def draw(self, task: ExplanationTask) -> Tensor:
        bump = torch.ones((), device=task.x0.device)
        for length in task.size:
            at = (torch.arange(length, device=task.x0.device) + 0.5) / length - 0.5
            bump = bump[..., None] * torch.exp(-0.5 * (at / self.width) ** 2)
        return bump.expand(len(task), *task.size).clone()
