"""Attacks on clips: V-BAD rectifies a surrogate's perturbation by patches, Geo-TRAP moves one random frame through time."""

from __future__ import annotations

import math
from typing import NoReturn

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from benchmarks.peers.trial import Trial, ask_margins, margins
from rlab.core.vectors import lengths, unit, wide

_PATCH = 8  # pixels along the sides of V-BAD's patches
_PAIRS, _SIGMA = 5, 0.1  # antithetic pairs for an estimate (the paper has 24), and the length of their probes in steps
_PROBE, _LEARNING = 0.1, 1.0  # Geo-TRAP: length of the probes in steps, and what an estimate adds to the direction
_TURN, _GROW, _GO = 0.1, 0.1, 0.2  # Geo-TRAP: angle, growth and way at the end of the clip, times a normal number


def vbad(trial: Trial) -> NoReturn:
    """V-BAD (Jiang et al. 2019, https://arxiv.org/abs/1904.05181), with steps of an L2 of `strength`.

    The tentative perturbation is the mean of the surrogates' gradient directions. Its patches get weights by natural evolution
    strategies. With the paper's 48 queries an estimate, 50 queries allow one step, so that an estimate takes 10 here.
    """
    recorder, space = trial.recorder, trial.space
    _, rival = margins(recorder.clean, trial.y)
    step = 0
    while True:
        rows = recorder.live()
        tentative = _tentative(trial, rows, rival[rows])
        total, blocks = torch.zeros_like(tentative), _blocks(tentative)
        for pair in range(_PAIRS):
            noise = trial.uniform(rows, step * _PAIRS + pair, blocks)
            probe = unit(_spread(torch.erfinv((2 * noise - 1) * 0.999), tentative) * tentative)
            total = total + probe * wide(_difference(trial, rows, _SIGMA * trial.strength * probe), probe)
        rows, left = recorder.live(), recorder.open.to(rows.device)[rows]
        move = torch.where(wide(lengths(total) > 0, total), unit(total), tentative)[left]
        margin, following = ask_margins(recorder, space.moved(rows, trial.strength * move), rows)
        answered = ~margin.isnan()
        rival[rows[answered]] = following[answered]
        space.keep(rows[answered])
        step += 1


def _tentative(trial: Trial, samples: Tensor, rival: Tensor) -> Tensor:
    """Unit directions (m, c, *size) in which the surrogates' margins fall: the sum of their own unit directions."""
    x, weights = trial.space.x[samples], torch.zeros_like(trial.recorder.clean[samples])
    weights = weights.scatter(1, rival[:, None], 1.0).scatter(1, trial.y[samples][:, None], -1.0)
    each = [trial.ensemble.direction(x, torch.full_like(samples, s), weights) for s in range(len(trial.ensemble))]
    return unit(torch.stack(each).sum(0))


def _blocks(x: Tensor) -> int:
    frames = math.prod(x.shape[2:-2])
    return frames * -(-x.shape[-2] // _PATCH) * -(-x.shape[-1] // _PATCH)


def _spread(values: Tensor, like: Tensor) -> Tensor:
    """A value for each patch of each frame (m, b) -> (m, 1, *size)."""
    height, width = like.shape[-2:]
    grid = values.view(len(values), 1, *like.shape[2:-2], -(-height // _PATCH), -(-width // _PATCH)).to(like)
    return grid.repeat_interleave(_PATCH, -2).repeat_interleave(_PATCH, -1)[..., :height, :width]


def _difference(trial: Trial, samples: Tensor, probe: Tensor) -> Tensor:
    """(m,): by how much the margin is lower after the probe than after its opposite; two queries, 0 where one was not sent."""
    x = trial.space.x[samples]
    ahead, back = (ask_margins(trial.recorder, (x + sign * probe).clamp(0, 1), samples)[0] for sign in (1, -1))
    return (back - ahead).nan_to_num()


def geo_trap(trial: Trial) -> NoReturn:
    """Geo-TRAP (Li et al. 2021, https://arxiv.org/abs/2110.01823), with steps of an L2 of `strength` and no surrogate.

    A probe is one random frame that turns, grows and moves evenly through the clip, so that few numbers describe it. Two queries
    estimate the slope along it, which the direction learns as a bandit does; then the clip takes a step along the direction.
    """
    recorder, space = trial.recorder, trial.space
    direction, step = torch.zeros_like(trial.x), 0
    while True:
        rows = recorder.live()
        probe = unit(_travelling(trial, rows, step))
        here = direction[rows]
        reach = _PROBE * trial.strength
        slope = _difference(trial, rows, reach * probe) / (2 * reach)
        direction[rows] = unit(here + _LEARNING * wide(slope, probe) * probe)
        rows = recorder.live()
        margin, _ = ask_margins(recorder, space.moved(rows, trial.strength * direction[rows]), rows)
        space.keep(rows[~margin.isnan()])
        step += 1


def _travelling(trial: Trial, samples: Tensor, step: int) -> Tensor:
    """(m, c, t, h, w): one normal frame, moved by a similarity transform that grows with time."""
    _, channels, frames, height, width = trial.x.shape
    still = trial.normal(samples, 2 * step)[:, :, 0]  # (m, c, h, w)
    drawn = trial.uniform(samples, 2 * step + 1, 4)
    turn, grow, right, down = (2 * drawn - 1).T * torch.tensor([_TURN, _GROW, _GO, _GO], device=still.device)[:, None]
    time = torch.linspace(0, 1, frames, device=still.device)
    angle, scale = turn[:, None] * time, 1 + grow[:, None] * time
    cos, sin = scale * angle.cos(), scale * angle.sin()
    rows = [torch.stack(row, -1) for row in ((cos, -sin, right[:, None] * time), (sin, cos, down[:, None] * time))]
    theta = torch.stack(rows, -2).flatten(0, 1).to(still)  # (m * t, 2, 3)
    repeated = still.repeat_interleave(frames, 0)
    grid = affine_grid(theta, list(repeated.shape), align_corners=False)
    moved = grid_sample(repeated, grid, padding_mode="reflection", align_corners=False)
    return moved.view(len(samples), frames, channels, height, width).transpose(1, 2)
