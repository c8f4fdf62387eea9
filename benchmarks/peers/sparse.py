"""Sparse-RS and Patch-RS: random search over few pixels, or over one patch (Croce et al. 2022, https://arxiv.org/abs/2006.12834)."""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import NoReturn

import torch
from torch import Tensor

from benchmarks.peers.trial import Trial, ask_margins
from rlab.core.vectors import wide

_SHARE = 0.3  # of the pixels that the first steps exchange
_ENDS = (0, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # of the schedule's stages, of 10,000 queries
_DIVISORS = (1, 2, 4, 5, 6, 8, 10, 12, 15, 20)
_SQUARE = 0.4  # share of the patch that the first square covers
_SHIFT = 0.75  # longest first move of the patch, as a share of the room it has
_MOVES = 5  # every fifth step moves the patch
_SQUARES = 100  # random squares in the first patch


def divisor(step: int, budget: int) -> int:
    """By how much the first share is divided at this step, with the paper's schedule stretched to the budget."""
    return _DIVISORS[bisect_left(_ENDS, step * 10_000 // budget)]


def sparse_rs(trial: Trial) -> NoReturn:
    """`strength` pixels have random corner colours; each step exchanges some of them."""
    recorder, x0 = trial.recorder, trial.x
    places = x0[0, 0].numel()
    count = min(int(trial.strength), places // 2)
    every = torch.arange(len(x0), device=x0.device)
    chosen = trial.uniform(every, 0, places).argsort(1)[:, :count]
    colours = _corners(trial, every, 1, count)
    best, step = torch.full((len(x0),), torch.inf, device=x0.device), 0
    while True:
        rows = recorder.live()
        new, painted = chosen[rows], colours[rows]
        if step:
            changed = max(1, int(_SHARE * count / divisor(step, recorder.budget)))
            out = trial.uniform(rows, 3 * step, count).argsort(1)[:, :changed]
            free = trial.uniform(rows, 3 * step + 1, places).scatter(1, new, 2.0).argsort(1)[:, :changed]
            new = new.scatter(1, out, free)
            fresh = _corners(trial, rows, 3 * step + 2, changed)
            painted = painted.scatter(2, out[:, None].expand_as(fresh), fresh)
        x = x0[rows].flatten(2).scatter(2, new[:, None].expand_as(painted), painted).view_as(x0[rows])
        margin, _ = ask_margins(recorder, x, rows)
        better = margin < best[rows]
        kept = rows[better]
        best[kept], chosen[kept], colours[kept] = margin[better], new[better], painted[better]
        step += 1


def _corners(trial: Trial, samples: Tensor, step: int, count: int) -> Tensor:
    """(m, c, count) of zeros and ones."""
    channels = trial.x.shape[1]
    return trial.uniform(samples, step, channels * count).view(-1, channels, count).round().to(trial.x)


def patch_rs(trial: Trial) -> NoReturn:
    """One opaque patch of `strength` x `strength` pixels: steps paint a square of it, every fifth moves the whole patch."""
    recorder, x0 = trial.recorder, trial.x
    size = torch.tensor(x0.shape[-2:], device=x0.device)
    side = min(int(trial.strength), int(size.min()))
    every, room = torch.arange(len(x0), device=x0.device), size - side
    patch = trial.uniform(every, 0, x0.shape[1]).round().to(x0)[..., None, None].repeat(1, 1, side, side)
    for number in range(_SQUARES):
        patch = _painted(trial, every, patch, number + 1, max(1, side // 4))
    corner = (trial.uniform(every, _SQUARES + 1, 2) * (room + 1)).long()
    best, step = torch.full((len(x0),), torch.inf, device=x0.device), 0
    while True:
        rows = recorder.live()
        new, at, number = patch[rows], corner[rows], _SQUARES + 2 + step
        if step and step % _MOVES == 0:
            reach = (_SHIFT * (1 - step / recorder.budget) * room).clamp(min=1)
            moved = at + ((2 * trial.uniform(rows, number, 2) - 1) * reach).round().long()
            at = torch.minimum(moved.clamp(min=0), room)
        elif step:
            painted = math.sqrt(_SQUARE / divisor(step, recorder.budget)) * side
            new = _painted(trial, rows, new, number, max(1, int(painted)))
        margin, _ = ask_margins(recorder, _pasted(x0[rows], new, at), rows)
        better = margin < best[rows]
        kept = rows[better]
        best[kept], patch[kept], corner[kept] = margin[better], new[better], at[better]
        step += 1


def _painted(trial: Trial, samples: Tensor, patch: Tensor, step: int, side: int) -> Tensor:
    """The patch (m, c, s, s) with a random square of a random corner colour."""
    draw = trial.uniform(samples, step, 2 + patch.shape[1])
    corner = (draw[:, :2] * (patch.shape[-1] - side + 1)).long()
    inside = _window(corner, side, (patch.shape[-2], patch.shape[-1]))
    return torch.where(inside[:, None], wide(draw[:, 2:].round().to(patch), patch), patch)


def _pasted(x: Tensor, patch: Tensor, corner: Tensor) -> Tensor:
    """Images (m, c, h, w) with the patch (m, c, s, s) at the corner (m, 2)."""
    out, side = x.clone(), patch.shape[-1]
    for row, (top, left) in enumerate(corner.tolist()):
        out[row, :, top : top + side, left : left + side] = patch[row]
    return out


def _window(corner: Tensor, side: int, size: tuple[int, int]) -> Tensor:
    """(m, h, w) bool: the square of this side at each corner (m, 2)."""
    rows, columns = (torch.arange(length, device=corner.device) - corner[:, i, None] for i, length in enumerate(size))
    down, across = (rows >= 0) & (rows < side), (columns >= 0) & (columns < side)
    return down[:, :, None] & across[:, None]
