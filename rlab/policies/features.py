"""What the learned agent sees of a state: small maps over the patch grid, in units that no model, palette or size sets.

Everything is per patch: the input and the current input at a few cells a patch, what each palette entry would change, what
was tried and what it brought (as a share of the margin at the start), how far each entry goes along the compass's directions,
and a few numbers on how the attack stands.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from rlab.core.env import State, Task
from rlab.core.grid import PatchGrid
from rlab.priors.trained import DirectionPrior, projection

CELLS = 2  # along each axis of a patch
SCALARS = 10
ENTRY_MAPS = 3
PATCH_MAPS = 4
EFFECT = 10.0  # the scale of drops in margin: a tenth of the first margin is 1
Features = dict[str, Tensor]


def fixed(state: State, grid: PatchGrid, channels: int, compass: DirectionPrior | None) -> Features:
    """What stays during an episode: `before` (n, c, *cells), `entries` (n, f, 2c, *grid), `projection` (n, f, heads, *grid)."""
    bank = _channels(state.bank, channels, 2) / _each(state.scale, state.bank)
    change = bank[:, 1:] - bank[:, :1]
    mean, power = grid.reduce(change), grid.reduce(change.square())
    entries = torch.cat([4 * mean, 4 * power.sqrt()], 2)
    n, f = change.shape[:2]
    lean = change.new_zeros(n, f, 0, len(grid))
    if compass is not None:
        # a direction has length one, so that its share in a patch gets smaller the more patches there are
        lean = (projection(compass(bank[:, 0]), change, grid) * len(grid)).clamp(-20, 20)
    return {
        "before": cells(bank[:, 0], grid),
        "entries": entries.view(*entries.shape[:3], *grid.shape),
        "projection": lean.view(*lean.shape[:3], *grid.shape),
    }


def pack(own: Features) -> Tensor:
    """The fixed part as (n, m), so that it can travel in a state's memory and is worked out once."""
    return torch.cat([own[key].flatten(1) for key in ("before", "entries", "projection")], 1)


def unpack(flat: Tensor, task: Task, channels: int, heads: int) -> Features:
    """The inverse of `pack`."""
    grid, p = task.grid, len(task.grid)
    sizes = [channels * p * CELLS**grid.rank, task.entries * 2 * channels * p, task.entries * heads * p]
    before, entries, lean = flat.split(sizes, 1)
    return {
        "before": before.view(len(flat), channels, *(count * CELLS for count in grid.shape)),
        "entries": entries.view(len(flat), task.entries, 2 * channels, *grid.shape),
        "projection": lean.view(len(flat), task.entries, heads, *grid.shape),
    }


def moving(state: State, task: Task, channels: int) -> Features:
    """The part that changes with every step."""
    grid = task.grid
    now = _channels(state.x, channels, 1) / _each(state.scale, state.x)
    share = (state.feedback / state.margin0[:, None, None] * EFFECT).clamp(-3, 3)
    often = state.tried.clamp(max=4) / 2
    entries = torch.arange(state.bank.shape[1], device=state.x.device)
    here = (state.assignment[:, None] == entries[:, None]).to(share.dtype)
    maps = torch.stack([here, share, often], 2)
    patch = torch.cat([maps[:, 0], share.amax(1, keepdim=True)], 1)
    return {
        "now": cells(now, grid),
        "entry_maps": maps[:, 1:].reshape(len(state), -1, ENTRY_MAPS, *grid.shape),
        "patch_maps": patch.reshape(len(state), PATCH_MAPS, *grid.shape),
        "scalars": _scalars(state, task),
    }


def cells(x: Tensor, grid: PatchGrid) -> Tensor:
    """(n, c, *size) -> (n, c, *grid * CELLS): means over the cells of each patch."""
    whole = [count * side for count, side in zip(grid.shape, grid.patch, strict=True)]
    gaps = [n - length for n, length in zip(whole, grid.size, strict=True)]
    if any(gaps):
        x = F.pad(x, [n for gap in reversed(gaps) for n in (0, gap)], mode="replicate")
    return _POOLS[grid.rank](x, [count * CELLS for count in grid.shape])


def _scalars(state: State, task: Task) -> Tensor:
    used = state.step / task.budget
    held = (state.assignment != 0).to(torch.float32).mean(1)
    top = state.scores.float().topk(min(3, state.scores.shape[1]), 1).values.exp().clamp(max=1)
    rest = F.pad(top, (0, 3 - top.shape[1]))
    said = torch.stack(
        [
            state.margin / state.margin0,
            (state.margin0 + 1).log() / 3,
            (state.step + 1.0).log() / 5,
            used,
            state.l2_penalty,
            (held * 10).clamp(max=2),
            (state.distance + 1).log(),
        ],
        1,
    )
    return torch.cat([said, rest], 1)


def _channels(x: Tensor, channels: int, axis: int) -> Tensor:
    """As many channels as the agent was made for: fewer are repeated, more are averaged in groups."""
    have = x.shape[axis]
    if have == channels:
        return x
    wide = F.adaptive_avg_pool1d(x.movedim(axis, -1).reshape(-1, 1, have), channels)
    return wide.view(*x.movedim(axis, -1).shape[:-1], channels).movedim(-1, axis)


def _each(scale: Tensor, like: Tensor) -> Tensor:
    return scale.view(-1, *(1,) * (like.dim() - 1))


_POOLS: dict[int, Any] = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}
