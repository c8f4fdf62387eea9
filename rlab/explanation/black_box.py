"""Baselines that need only scores, for any rank: RISE and D-RISE, occlusion, a bump in the middle; and Kernel SHAP and LIME from
captum, with queries counted by the same meter.
"""

from __future__ import annotations

from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import one_hot

from rlab.core.channels import TOGETHER
from rlab.core.rng import seeded_globals, uniform
from rlab.core.vectors import wide
from rlab.errors import MissingExtra, optional
from rlab.explanation.base import Count, Drawn, ExplanationTask, grouped_maps, lead_groups, removed
from rlab.explanation.maps import even_grid, mean_fill, raise_patches, resize

AT_ONCE = 64  # rows per batch in captum


def rise(
    task: ExplanationTask,
    *,
    masks: Count = 8000,
    cells: Count = 7,  # per axis
    chance: Annotated[float, Field(gt=0, lt=1)] = 0.5,  # of a cell to be visible
    remove: str = "mean",  # or 'blur', 'noise', a filter with its severity; the paper uses a constant
    channels: str | None = None,  # groups that have masks of their own
) -> Drawn:
    """The mean of random soft masks, weighted by the class's probability when only the mask shows.

    Petsiuk et al. 2018, https://arxiv.org/abs/1806.07421. D-RISE, for detectors, has 5,000 masks of 16 x 16 cells, and the overlap
    of boxes times their score replaces the probability: Petsiuk et al. 2021, https://arxiv.org/abs/2006.03204.
    """
    groups, fill = lead_groups(task, channels or TOGETHER), removed(task, remove)
    total = torch.zeros(len(task), len(groups), *task.size, device=task.x0.device)
    for samples, steps in task.pairs(masks):
        seeds = task.seeds[samples]
        own = [_soft_masks(seeds, steps * len(groups) + g, task.size, cells, chance) for g in range(len(groups))]
        visible, hidden = torch.stack(own, 1), fill[samples]
        untouched = wide((~groups.any(0)).to(visible), visible[0])  # channels of no group stay visible
        by_lead = torch.einsum("mg...,gc->mc...", visible, groups.to(visible)) + untouched
        shown = hidden + by_lead * (task.x0[samples] - hidden)
        total.index_add_(0, samples, visible * wide(task.probability(shown, samples), visible))
    return grouped_maps(total / (masks * chance), groups)


def _soft_masks(seeds: Tensor, steps: Tensor, size: tuple[int, ...], cells: int, chance: float) -> Tensor:
    """(m, *size) in [0, 1]: random cells, smoothed and shifted by a random part of a cell."""
    grid = even_grid(size, cells)
    draw = uniform(seeds, steps, len(grid) + len(size))
    coarse = (draw[:, : len(grid)] < chance).float().view(-1, *grid.shape)
    mask = resize(coarse, tuple((count + 1) * side for count, side in zip(grid.shape, grid.patch, strict=True)))
    for axis, (length, side) in enumerate(zip(size, grid.patch, strict=True), 1):
        shift = (draw[:, len(grid) + axis - 1] * side).long()
        along = torch.arange(length, device=mask.device).view(-1, *(1,) * (len(size) - axis))
        shape = (*mask.shape[:axis], length, *mask.shape[axis + 1 :])
        mask = mask.gather(axis, (wide(shift, mask) + along).expand(shape))
    return mask


def occlusion(task: ExplanationTask, *, channels: str | None = None, along: Count = 14) -> Drawn:
    """The drop of the class's log-probability when one of `along` patches per axis is hidden, in one group of `channels` after the
    other.

    Zeiler and Fergus 2014, https://arxiv.org/abs/1311.2901.
    """
    grid, fill = even_grid(task.size, along), mean_fill(task.x0)
    groups = lead_groups(task, channels or TOGETHER)

    def without(samples: Tensor, items: Tensor) -> Tensor:
        box = grid.expand(one_hot(items % len(grid), len(grid)).float()) > 0
        inside = groups[items // len(grid)].view(len(box), -1, *(1,) * len(task.size)) & box[:, None]
        return task.query(torch.where(inside, fill[samples], task.x0[samples]), samples)

    drops = task.clean_score[:, None] - task.answers(len(groups) * len(grid), without)
    maps = raise_patches(drops.view(-1, len(grid)), grid)
    return grouped_maps(maps.view(len(task), len(groups), *task.size), groups)


def middle(task: ExplanationTask, *, width: Annotated[float, Field(gt=0, le=1_000_000)] = 0.25) -> Tensor:
    """A Gaussian in the middle of the input; `width` is its standard deviation as a share of each axis.

    It never looks at the model: any useful map must beat it.
    """
    bump = torch.ones((), device=task.x0.device)
    for length in task.size:
        at = (torch.arange(length, device=task.x0.device) + 0.5) / length - 0.5
        bump = bump[..., None] * torch.exp(-0.5 * (at / width) ** 2)
    return bump.expand(len(task), *task.size).clone()


def captum() -> Any:
    """captum's attribution methods, from the extra 'explain'."""
    return optional("captum.attr", MissingExtra("captum", "explain"))


def linear(
    attribution: str,
    task: ExplanationTask,
    *,
    samples: Count = 700,  # queried sets
    along: Count = 8,  # patches per axis
    remove: str = "mean",
) -> Tensor:
    """The coefficients of a linear model of the output on random sets of patches, by captum's class of this name.

    KernelShap weights the sets by Shapley's kernel: Lundberg and Lee 2017, https://arxiv.org/abs/1705.07874. For Lime, sets near
    the input count most, and the lasso selects few patches: Ribeiro et al. 2016, https://arxiv.org/abs/1602.04938.
    """
    grid, fill = even_grid(task.size, along), removed(task, remove)
    patches = grid.expand(torch.arange(len(grid), device=fill.device).float()[None])[:, None].long()
    weights = []
    for row, seed in enumerate(task.seeds.tolist()):
        whose = torch.tensor(row, device=fill.device)
        method = getattr(captum(), attribution)(lambda x, whose=whose: task.probability(x, whose.expand(len(x))))
        with seeded_globals(seed % 2**63):  # captum uses torch's global generator
            coefficients = method.attribute(
                task.x0[row : row + 1],
                baselines=fill[row : row + 1],
                feature_mask=patches,
                n_samples=samples,
                perturbations_per_eval=AT_ONCE,
                return_input_shape=False,
            )
        weights.append(coefficients.flatten())
    return raise_patches(torch.stack(weights).float(), grid)
