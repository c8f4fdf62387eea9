"""Coarse before fine: regions whose effects are believed to vary together, and groups of patches that are proposed as one.

Where patches are many (a clip, a long signal, single pixels), a query of single patches here and there says little of any of
them. So proposals are first made of groups, blocks of neighbours, and of smaller ones as soon as these bring nothing more; a grid
of few patches has one level, the patches themselves. Everything follows the grid: one code for every rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from rlab.core.grid import PatchGrid

GROUPS = 256  # of patches at the coarsest level, at most
CPU = torch.device("cpu")


def blocks(grid: PatchGrid, parts: int | Sequence[int]) -> Tensor:
    """(p,): the region of each patch when every axis is cut into so many parts, or each into its own number."""
    index = torch.zeros(grid.shape, dtype=torch.long)
    wanted = (parts,) * grid.rank if isinstance(parts, int) else parts
    for axis, count in enumerate(grid.shape):
        cut = min(wanted[axis], count)
        part = torch.arange(count) * cut // count
        index = index * cut + part.view([-1 if a == axis else 1 for a in range(grid.rank)])
    return index.flatten()


@cache
def region_levels(grid: PatchGrid, device: torch.device = CPU) -> tuple[Tensor, ...]:
    """Regions whose effects are believed to vary together: the whole, halves and quarters along every axis; of clips time
    and space apart: frames and runs of them, cells of all frames down to single places, and cells of runs of frames."""
    if grid.rank < 3:
        return tuple(blocks(grid, parts).to(device) for parts in (1, 2, 4))
    frames, rows, columns = grid.shape
    cuts = ((1, 1, 1), (4, 1, 1), (frames, 1, 1), (1, 2, 2), (1, 4, 4), (1, rows, columns), (4, 4, 4))
    return tuple(blocks(grid, parts).to(device) for parts in cuts)


@cache
def group_levels(grid: PatchGrid, device: torch.device = CPU) -> Tensor:
    """(levels, p): groups of patches that proposals are made of, coarse first; the last are single patches."""
    levels, parts = [torch.arange(len(grid))], list(grid.shape)
    while math.prod(parts) > GROUPS:
        axis = max(range(len(parts)), key=lambda a: parts[a])
        parts[axis] = -(-parts[axis] // 2)
        levels.insert(0, blocks(grid, parts))
    return torch.stack(levels).to(device)


def coarsened(effect: Tensor, cost: Tensor, group: Tensor) -> Tensor:
    """Effects (n, a, f, p) evened over groups (n, p) of patches, so that each gains as much for its cost as its whole group."""
    index = group[:, None].expand_as(cost)
    spent = torch.zeros_like(cost).scatter_add_(2, index, cost).clamp(min=1e-30)
    wide = index[:, None].expand_as(effect)
    rate = torch.zeros_like(effect).scatter_add_(3, wide, effect) / spent[:, None]
    return rate.gather(3, wide) * cost[:, None]
