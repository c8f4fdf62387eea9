"""Baselines that need only scores, for any rank: RISE and D-RISE, occlusion, a bump in the middle; and Kernel SHAP and LIME from
captum, with queries counted by the same meter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from rlab.core.channels import TOGETHER
from rlab.core.rng import seeded_globals, uniform
from rlab.core.vectors import wide
from rlab.errors import MissingExtra, OptionError, optional
from rlab.explanation.base import ByLead, Drawn, ExplanationTask, Method, grouped_maps, lead_groups, removed
from rlab.explanation.maps import even_grid, mean_fill, raise_patches, resize

AT_ONCE = 64  # rows per batch in captum


@dataclass(frozen=True)
class Rise(ByLead):
    """The mean of random soft masks, weighted by the class's probability when only the mask shows.

    Petsiuk et al. 2018, https://arxiv.org/abs/1806.07421: 8,000 masks of 7 x 7 cells, each visible with probability 0.5. Groups of
    `channels` have masks of their own.
    """

    name = "rise"
    masks: int = 8000
    cells: int = 7
    chance: float = 0.5
    remove: str = "mean"  # or 'blur', 'noise', a filter with its severity; the paper uses a constant

    def __post_init__(self) -> None:
        if not 0 < self.chance < 1:
            raise OptionError(f"expected chance of the method {self.name!r} above 0 and below 1, got {self.chance}")

    def draw(self, task: ExplanationTask) -> Drawn:
        groups, fill = lead_groups(task, self.channels or TOGETHER), removed(task, self.remove)
        total = torch.zeros(len(task), len(groups), *task.size, device=task.x0.device)
        for samples, steps in task.pairs(self.masks):
            own = [self._masks(task.seeds[samples], steps * len(groups) + g, task.size) for g in range(len(groups))]
            visible, hidden = torch.stack(own, 1), fill[samples]
            untouched = wide((~groups.any(0)).to(visible), visible[0])  # channels of no group stay visible
            by_lead = torch.einsum("mg...,gc->mc...", visible, groups.to(visible)) + untouched
            shown = hidden + by_lead * (task.x0[samples] - hidden)
            total.index_add_(0, samples, visible * wide(task.probability(shown, samples), visible))
        return grouped_maps(total / (self.masks * self.chance), groups)

    def _masks(self, seeds: Tensor, steps: Tensor, size: tuple[int, ...]) -> Tensor:
        """(m, *size) in [0, 1]: random cells, smoothed and shifted by a random part of a cell."""
        grid = even_grid(size, self.cells)
        draw = uniform(seeds, steps, len(grid) + len(size))
        coarse = (draw[:, : len(grid)] < self.chance).float().view(-1, *grid.shape)
        mask = resize(coarse, tuple((count + 1) * side for count, side in zip(grid.shape, grid.patch, strict=True)))
        for axis, (length, side) in enumerate(zip(size, grid.patch, strict=True), 1):
            shift = (draw[:, len(grid) + axis - 1] * side).long()
            along = torch.arange(length, device=mask.device).view(-1, *(1,) * (len(size) - axis))
            shape = (*mask.shape[:axis], length, *mask.shape[axis + 1 :])
            mask = mask.gather(axis, (wide(shift, mask) + along).expand(shape))
        return mask


@dataclass(frozen=True)
class Drise(Rise):
    """`Rise` with the settings for detectors, where the overlap of boxes times their score replaces the class's probability.

    Petsiuk et al. 2021, https://arxiv.org/abs/2006.03204: 5,000 masks of 16 x 16 cells.
    """

    name = "drise"
    masks: int = 5000
    cells: int = 16


@dataclass(frozen=True)
class Occlusion(ByLead):
    """The drop of the class's log-probability when one patch is hidden, in one group of `channels` after the other.

    Zeiler and Fergus 2014, https://arxiv.org/abs/1311.2901.
    """

    name = "occlusion"
    along: int = 14  # patches per axis

    def draw(self, task: ExplanationTask) -> Drawn:
        grid, fill = even_grid(task.size, self.along), mean_fill(task.x0)
        groups = lead_groups(task, self.channels or TOGETHER)

        def without(samples: Tensor, items: Tensor) -> Tensor:
            box = grid.expand(one_hot(items % len(grid), len(grid)).float()) > 0
            inside = groups[items // len(grid)].view(len(box), -1, *(1,) * len(task.size)) & box[:, None]
            return task.query(torch.where(inside, fill[samples], task.x0[samples]), samples)

        drops = task.clean_score[:, None] - task.answers(len(groups) * len(grid), without)
        maps = raise_patches(drops.view(-1, len(grid)), grid)
        return grouped_maps(maps.view(len(task), len(groups), *task.size), groups)


@dataclass(frozen=True)
class Middle(Method):
    """A Gaussian in the middle of the input. It never looks at the model: any useful map must beat it."""

    name = "middle"
    width: float = 0.25  # standard deviation as a share of each axis

    def draw(self, task: ExplanationTask) -> Tensor:
        bump = torch.ones((), device=task.x0.device)
        for length in task.size:
            at = (torch.arange(length, device=task.x0.device) + 0.5) / length - 0.5
            bump = bump[..., None] * torch.exp(-0.5 * (at / self.width) ** 2)
        return bump.expand(len(task), *task.size).clone()


def captum() -> Any:
    """captum's attribution methods, from the extra 'explain'."""
    return optional("captum.attr", MissingExtra("captum", "explain"))


@dataclass(frozen=True)
class Line(Method):
    """The coefficients of a linear model of the output on random sets of patches, which captum weights."""

    attribution: ClassVar[str]  # captum's name
    samples: int = 700  # queried sets
    along: int = 8  # patches per axis
    remove: str = "mean"

    def draw(self, task: ExplanationTask) -> Tensor:
        grid, fill = even_grid(task.size, self.along), removed(task, self.remove)
        patches = grid.expand(torch.arange(len(grid), device=fill.device).float()[None])[:, None].long()
        weights = []
        for row, seed in enumerate(task.seeds.tolist()):
            whose = torch.tensor(row, device=fill.device)
            fit = getattr(captum(), self.attribution)
            method = fit(lambda x, whose=whose: task.probability(x, whose.expand(len(x))))
            with seeded_globals(seed % 2**63):  # captum uses torch's global generator
                coefficients = method.attribute(
                    task.x0[row : row + 1],
                    baselines=fill[row : row + 1],
                    feature_mask=patches,
                    n_samples=self.samples,
                    perturbations_per_eval=AT_ONCE,
                    return_input_shape=False,
                )
            weights.append(coefficients.flatten())
        return raise_patches(torch.stack(weights).float(), grid)


@dataclass(frozen=True)
class KernelShap(Line):
    """Sets weighted by Shapley's kernel, and least squares. Lundberg and Lee 2017, https://arxiv.org/abs/1705.07874."""

    name = "kernel_shap"
    attribution = "KernelShap"


@dataclass(frozen=True)
class Lime(Line):
    """Sets near the input count most, and the lasso selects few patches. Ribeiro et al. 2016, https://arxiv.org/abs/1602.04938."""

    name = "lime"
    attribution = "Lime"
