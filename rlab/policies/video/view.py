"""What the two agents see of a state: maps over frames and their patches, in units that no model, palette or size sets.

n rows, t frames, f palette entries, (rows, columns) patches of a frame. The fixed part is worked out once a clip and travels
in the state's memory; the moving part is read off the state at every step.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from rlab.core.env import State, Task
from rlab.core.grid import PatchGrid
from rlab.priors.trained import DirectionPrior, projection

SCALARS = 8
CELLS = 2  # along each side of a patch
CHANGE_MAPS, TRY_MAPS, PATCH_MAPS = 3, 3, 3
EFFECT = 10.0  # the scale of drops in margin: a tenth of the first margin is 1
View = dict[str, Tensor]


def fixed(
    state: State,
    grid: PatchGrid,
    channels: int,
    frames: Tensor,
    hints: Tensor | None,
    compass: DirectionPrior | None = None,
) -> View:
    """`frames` (n, t, k), `cells` (n, t, 4c [+ 2], rows, columns), `changes` (n, f, t, 3 + heads, rows, columns)."""
    t, rows, columns = grid.shape
    x0 = in_channels(state.x0, channels) / _each(state.scale, state.x0)
    cells = F.adaptive_avg_pool3d(x0, (t, CELLS * rows, CELLS * columns)).transpose(1, 2)
    cells = F.pixel_unshuffle(cells - 0.5, CELLS)
    if hints is not None:
        cells = torch.cat([cells, hints], 2)
    return {"frames": frames, "cells": cells, "changes": _changes(state, grid, x0, compass)}


def _changes(state: State, grid: PatchGrid, x0: Tensor, compass: DirectionPrior | None) -> Tensor:
    """(n, f, t, 3 + heads, rows, columns): each entry's mean, root mean square and mean size in a patch, and how far it
    goes along each direction of the compass."""
    change = (state.bank[:, 1:] - state.bank[:, :1]) / _each(state.scale, state.bank)
    mean = grid.reduce(change.mean(2))
    power = grid.reduce(change.square().mean(2)).sqrt()
    maps = 4 * torch.stack([mean, power, grid.reduce(change.abs().mean(2))], 2)
    if compass is not None:
        change = in_channels(change.flatten(0, 1), x0.shape[1]).unflatten(0, change.shape[:2])
        maps = torch.cat([maps, (projection(compass(x0), change, grid) * len(grid)).clamp(-20, 20) / 4], 2)
    return maps.unflatten(3, grid.shape).transpose(2, 3)


def pack(own: View) -> Tensor:
    """The fixed part as (n, m)."""
    return torch.cat([own[name].flatten(1) for name in ("frames", "cells", "changes")], 1)


def unpack(flat: Tensor, task: Task, depth: int, wide: int, changed: int = CHANGE_MAPS) -> View:
    """The inverse of `pack`; `depth` numbers a frame, `wide` maps of cells, `changed` maps of an entry."""
    (t, rows, columns), f = task.grid.shape, task.entries
    sizes = (t * depth, t * wide * rows * columns, f * t * changed * rows * columns)
    frames, cells, changes = flat.split(sizes, 1)
    return {
        "frames": frames.view(-1, t, depth),
        "cells": cells.view(-1, t, wide, rows, columns),
        "changes": changes.view(-1, f, t, changed, rows, columns),
    }


def moving(state: State, task: Task) -> View:
    """`tries` (n, f, t, 3, rows, columns), `patches` (n, t, 3, rows, columns), `scalars` (n, 8)."""
    shape = task.grid.shape
    entries = torch.arange(state.bank.shape[1], device=state.x.device)
    here = (state.assignment[:, None] == entries[:, None]).to(state.feedback.dtype)
    share = (state.feedback / state.margin0[:, None, None] * EFFECT).clamp(-3, 3)
    often = state.tried.clamp(max=4) / 2
    maps = torch.stack([here, share, often], 2).unflatten(3, shape).transpose(2, 3)  # (n, f + 1, t, 3, rows, columns)
    nothing = maps[:, 0]
    held = torch.cat([1 - nothing[:, :, :1], nothing[:, :, 1:]], 2)
    return {"tries": maps[:, 1:], "patches": held, "scalars": _scalars(state, task)}


def _scalars(state: State, task: Task) -> Tensor:
    """How the attack stands."""
    held = (state.assignment != 0).to(torch.float32).mean(1)
    top = F.pad(state.scores.float().topk(min(2, state.scores.shape[1]), 1).values.exp().clamp(max=1), (0, 2))[:, :2]
    said = (
        state.margin / state.margin0,
        (state.margin0 + 1).log() / 3,
        (state.step + 1.0).log() / 5,
        state.l2_penalty,
        (held * 10).clamp(max=2),
        (held > 0).to(torch.float32),
    )
    return torch.cat([torch.stack(said, 1), top], 1)


def costs(view: View) -> Tensor:
    """(n, t, f + 1, q): what each single change would add to the clip's mean absolute change times 255; entry 0 restores.

    Patches count as of one size: one that a clip's edge cuts short seems dearer than it is.
    """
    size = view["changes"][:, :, :, 2].flatten(3).transpose(1, 2) * (255 / 4)  # (n, t, f, q)
    here = view["tries"][:, :, :, 0].flatten(3).transpose(1, 2)
    size = size / (size.shape[1] * size.shape[3])
    spent = (size * here).sum(2, keepdim=True)
    return torch.cat([torch.zeros_like(spent), size], 2) - spent


def in_channels(x: Tensor, channels: int) -> Tensor:
    """(n, c, *size) -> (n, channels, *size): one channel is repeated, others are averaged and repeated."""
    if x.shape[1] == channels:
        return x
    return x.mean(1, keepdim=True).expand(-1, channels, *x.shape[2:])


def _each(scale: Tensor, like: Tensor) -> Tensor:
    return scale.view(-1, *(1,) * (like.dim() - 1))
