"""Methods from sensitivity analysis: total Sobol indices, and the HSIC of patch masks with the class's probability."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.rng import uniform
from rlab.explanation.base import ExplanationTask, Method, removed
from rlab.explanation.maps import even_grid, raise_patches


def total_sobol(base: Tensor, swapped: Tensor) -> Tensor:
    """Outputs (..., m) for a sample of masks, and (..., p, m) with one patch taken from another sample -> (..., p).

    Jansen 1999: a patch's total index is half the mean squared change, divided by the variance.
    """
    variance = base.var(-1, correction=0).clamp(min=1e-12)
    return (base[..., None, :] - swapped).square().mean(-1) / (2 * variance[..., None])


def hsic(masks: Tensor, answers: Tensor) -> Tensor:
    """Binary masks (m, p), outputs (m,) -> (p,): the dependence between each patch's mask and the output.

    Gretton et al. 2005, with equality as the kernel of masks and a Gaussian of median width as that of outputs.
    """
    gaps = (answers[:, None] - answers).abs()
    width = gaps[gaps > 0].median() if (gaps > 0).any() else gaps.new_ones(())
    like = torch.exp(-0.5 * (gaps / width) ** 2)
    like = like - like.mean(0) - like.mean(1, keepdim=True) + like.mean()
    same = (masks.T[:, :, None] == masks.T[:, None, :]).to(like.dtype)
    return (same * like).mean((1, 2))


def _answers(task: ExplanationTask, masks: Tensor, along: int, how: str) -> Tensor:
    """Masks (n, m, p) in [0, 1], where 1 shows a patch -> the class's probability (n, m)."""
    grid, fill = even_grid(task.size, along), removed(task, how)
    answers = torch.empty(masks.shape[:2], device=masks.device)
    for samples, items in task.pairs(masks.shape[1]):
        answers[samples, items] = task.shown(grid.expand(masks[samples, items]), fill, samples)
    return answers


def _uniform(task: ExplanationTask, rows: int, columns: int) -> Tensor:
    """(n, rows, columns) in [0, 1)."""
    steps = torch.arange(rows, device=task.x0.device)
    draw = uniform(task.seeds.repeat_interleave(rows), steps.repeat(len(task)), columns)
    return draw.view(len(task), rows, columns)


@dataclass(frozen=True)
class Sobol(Method):
    """The share of the output's variance that involves a patch, with interactions; `samples` * (patches + 1) queries.

    Fel et al. 2021, https://arxiv.org/abs/2111.04138.
    """

    name = "sobol"
    samples: int = 8
    along: int = 8  # patches per axis
    remove: str = "mean"

    def most(self, size: tuple[int, ...]) -> int:
        return 1 + self.samples * (len(even_grid(size, self.along)) + 1)

    def draw(self, task: ExplanationTask) -> Tensor:
        grid = even_grid(task.size, self.along)
        first, second = _uniform(task, self.samples, 2 * len(grid)).split(len(grid), 2)
        patch = torch.eye(len(grid), device=first.device, dtype=torch.bool)[None, :, None]
        swapped = torch.where(patch, second[:, None], first[:, None])  # (n, p, m, p)
        masks = torch.cat([first, swapped.flatten(1, 2)], 1)
        base, rest = _answers(task, masks, self.along, self.remove).split(
            [self.samples, swapped[0, :, :, 0].numel()], 1
        )
        return raise_patches(total_sobol(base, rest.view(len(task), len(grid), self.samples)), grid)


@dataclass(frozen=True)
class Hsic(Method):
    """The dependence between a patch's presence and the output. Novello et al. 2022, https://arxiv.org/abs/2206.06219."""

    name = "hsic"
    masks: int = 700
    along: int = 8
    remove: str = "mean"

    def most(self, size: tuple[int, ...]) -> int:
        return 1 + self.masks

    def draw(self, task: ExplanationTask) -> Tensor:
        grid = even_grid(task.size, self.along)
        shown = (_uniform(task, self.masks, len(grid)) < 0.5).float()
        answers = _answers(task, shown, self.along, self.remove)
        values = torch.stack([_hsic_in_parts(own, p) for own, p in zip(shown, answers, strict=True)])
        return raise_patches(values, grid)


def _hsic_in_parts(masks: Tensor, answers: Tensor, patches: int = 16) -> Tensor:
    """`hsic` of a few patches at a time: the kernels of all would fill the memory."""
    return torch.cat([hsic(part, answers) for part in masks.split(patches, 1)])
