"""Peers from sensitivity analysis: total Sobol indices and the HSIC of patches' masks with the class's probability."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.rng import uniform
from rlab.explanation.base import ExplanationTask, Method, removed
from rlab.explanation.maps import even_grid, raise_patches


def total_sobol(base: Tensor, swapped: Tensor) -> Tensor:
    """Answers (..., m) at one sample of masks, and (..., p, m) with one patch's values of another sample -> (..., p).

    Jansen 1999: a patch's total index is half the mean squared change, as a share of the variance.
    """
    variance = base.var(-1, correction=0).clamp(min=1e-12)
    return (base[..., None, :] - swapped).square().mean(-1) / (2 * variance[..., None])


def hsic(masks: Tensor, answers: Tensor) -> Tensor:
    """Masks (m, p) of zeros and ones, answers (m,) -> (p,): how far each patch's mask and the answer depend on each other.

    Gretton et al. 2005: the kernel of masks is equality, that of answers Gaussian, as wide as their median distance.
    """
    gaps = (answers[:, None] - answers).abs()
    width = gaps[gaps > 0].median() if (gaps > 0).any() else gaps.new_ones(())
    like = torch.exp(-0.5 * (gaps / width) ** 2)
    like = like - like.mean(0) - like.mean(1, keepdim=True) + like.mean()
    same = (masks.T[:, :, None] == masks.T[:, None, :]).to(like.dtype)
    return (same * like).mean((1, 2))


def _answers(task: ExplanationTask, masks: Tensor, along: int, how: str) -> Tensor:
    """Masks (n, m, p) in [0, 1], 1 shows a patch -> the class's probability (n, m)."""
    grid, fill = even_grid(task.size, along), removed(task, how)
    found = torch.empty(masks.shape[:2], device=masks.device)
    for samples, items in task.questions(masks.shape[1]):
        shown = grid.expand(masks[samples, items])[:, None]
        x = fill[samples] + shown * (task.x0 - fill)[samples]
        found[samples, items] = task.victim.probabilities(task.ask(x, samples))
    return found


def _uniform(task: ExplanationTask, rows: int, columns: int) -> Tensor:
    """(n, rows, columns) in [0, 1)."""
    steps = torch.arange(rows, device=task.x0.device)
    draw = uniform(task.seeds.repeat_interleave(rows), steps.repeat(len(task)), columns)
    return draw.view(len(task), rows, columns)


@dataclass(frozen=True)
class Sobol(Method):
    """How much of the answer's variance needs a patch, interactions included; `samples` times (patches + 1) queries.

    Fel et al. 2021, https://arxiv.org/abs/2111.04138.
    """

    name = "sobol"
    samples: int = 8
    along: int = 8  # patches on every axis
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
    """How far a patch's being there and the answer depend on each other. Novello et al. 2022, https://arxiv.org/abs/2206.06219."""

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
    """`hsic` of so many patches at once: the kernels of all of them would fill the memory."""
    return torch.cat([hsic(part, answers) for part in masks.split(patches, 1)])
