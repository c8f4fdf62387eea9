"""Coarse before fine: regions whose effects are believed to vary together, and groups of patches that are proposed as one.

On a grid of many patches (a clip, a long signal, single pixels), a query that changes single patches says little about any of
them. Proposals therefore start with groups, blocks of neighbours, and move to smaller groups when these no longer help. A grid
of few patches has one level, the patches themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from rlab.core.grid import PatchGrid

GROUPS = 256  # the most groups at the coarsest level
STRIDES = (2, 4, 8)  # of frames that vary together
CPU = torch.device("cpu")


def blocks(grid: PatchGrid, parts: int | Sequence[int]) -> Tensor:
    """(p,): the region of each patch when every axis is cut into `parts`, one number for all axes or one for each."""
    index = torch.zeros(grid.shape, dtype=torch.long)
    axes = len(grid.shape)
    wanted = (parts,) * axes if isinstance(parts, int) else parts
    for axis, count in enumerate(grid.shape):
        cut = min(wanted[axis], count)
        part = torch.arange(count) * cut // count
        index = index * cut + part.view([-1 if a == axis else 1 for a in range(axes)])
    return index.flatten()


@cache
def region_levels(grid: PatchGrid, device: torch.device = CPU) -> tuple[Tensor, ...]:
    """Regions whose effects are believed to vary together: the whole, halves and quarters along every axis. Video treats time
    and space apart: frames and runs of frames, every second, fourth and eighth frame (many networks look at few frames), cells
    over all frames down to single places, and cells of runs of frames. Groups of channels have such regions each, besides
    those that they share."""
    cuts: list[tuple[int, ...]] = [(parts,) * grid.rank for parts in (1, 2, 4)]
    strided: list[Tensor] = []
    if grid.kind == "video":
        frames, rows, columns = grid.cells
        cuts = [(1, 1, 1), (4, 1, 1), (frames, 1, 1), (1, 2, 2), (1, 4, 4), (1, rows, columns), (4, 4, 4)]
        frame = torch.arange(len(grid)) // (rows * columns) % frames
        strided = [frame % stride for stride in STRIDES if stride < frames]
    if grid.channels:
        cuts = [(groups, *cut) for groups in dict.fromkeys((1, len(grid.groups))) for cut in cuts]
    return tuple(level.to(device) for level in [*(blocks(grid, cut) for cut in cuts), *strided])


@cache
def group_levels(grid: PatchGrid, device: torch.device = CPU) -> Tensor:
    """(levels, p): the group of each patch, coarse levels first; the last level is single patches."""
    levels, parts = [torch.arange(len(grid))], list(grid.shape)
    while math.prod(parts) > GROUPS:
        axis = max(range(len(parts)), key=lambda a: parts[a])
        parts[axis] = -(-parts[axis] // 2)
        levels.insert(0, blocks(grid, parts))
    return torch.stack(levels).to(device)


def coarsened(effect: Tensor, cost: Tensor, group: Tensor) -> Tensor:
    """Effects (n, a, f, p) averaged over groups (n, p): every patch gets the rate of effect to cost of its group."""
    index = group[:, None].expand_as(cost)
    spent = torch.zeros_like(cost).scatter_add_(2, index, cost).clamp(min=1e-30)
    wide = index[:, None].expand_as(effect)
    rate = torch.zeros_like(effect).scatter_add_(3, wide, effect) / spent[:, None]
    return rate.gather(3, wide) * cost[:, None]
