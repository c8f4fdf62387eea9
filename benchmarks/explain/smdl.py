"""Submodular subset selection: the order in which regions explain most (Chen et al. 2024, https://arxiv.org/abs/2402.09164)."""

from __future__ import annotations

import torch
from torch import Tensor

from rlab.explanation.base import Count, ExplanationTask, removed
from rlab.explanation.maps import even_grid, raise_patches


def smdl(task: ExplanationTask, *, along: Count = 5, remove: str = "mean") -> Tensor:
    """Greedily add the region that raises most the class's probability with the set alone, plus its fall without the set.

    These are the paper's consistency and collaboration scores; its two others need the features of a network. Regions are a
    grid of `along` per axis, and each step queries every region that is left twice. As in the paper, a region's value is below the
    one chosen before it by what it adds.
    """
    grid, fill = even_grid(task.size, along), removed(task, remove)
    regions, every = len(grid), torch.arange(len(task), device=task.x0.device)
    chosen = torch.zeros(len(task), regions, device=task.x0.device)
    value, total = torch.zeros_like(chosen), torch.ones_like(chosen[:, 0])
    before: Tensor | None = None
    for left in range(regions, 0, -1):
        free = chosen.argsort(dim=1, stable=True)[:, :left]  # regions that no step has taken

        def score(samples: Tensor, items: Tensor) -> Tensor:
            region, alone = free[samples, items % left], items < left  # noqa: B023
            mask = chosen[samples].scatter(1, region[:, None], 1.0)
            visible = grid.expand(torch.where(alone[:, None], mask, 1 - mask))[:, None]
            shown = task.probability(torch.lerp(fill[samples], task.x0[samples], visible), samples)
            return torch.where(alone, shown, 1 - shown)

        gains = task.answers(2 * left, score).view(len(task), 2, left).sum(1)
        best, at = gains.max(1)
        total = total - (0.0 if before is None else (best - before).abs())
        before, taken = best, free[every, at]
        value[every, taken], chosen[every, taken] = total, 1.0
    return raise_patches(value, grid)


def most_queries(size: tuple[int, ...], along: int) -> int:
    regions = len(even_grid(size, along))
    return 1 + regions * (regions + 1)


def most_regions(size: tuple[int, ...], queries: int) -> int:
    """The most regions per axis within this number of queries."""
    return max(n for n in range(2, 64) if n == 2 or most_queries(size, n) <= queries)
