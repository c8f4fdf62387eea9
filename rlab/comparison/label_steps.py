"""HopSkipJump, an attack that uses only labels."""

from __future__ import annotations

import math
from typing import NoReturn

import torch
from torch import Tensor

from rlab.comparison.recorder import VALUES
from rlab.comparison.trial import Trial
from rlab.core.vectors import lengths, unit, wide

_BLEND = 1e-3  # precision of the first flip between the original and noise
_FIRST, _MOST = 100, 10_000  # probes for the first gradient estimate, and at most
_PROBE = 0.1  # length of the first probes
_TOGETHER = 50  # probes per call


def hop_skip_jump(trial: Trial) -> NoReturn:
    """HopSkipJumpAttack for L2 with the paper's constants (Chen et al. 2020, https://arxiv.org/abs/1904.02144).

    It blends noise that flips with the original. Each round estimates the gradient from random probes at the boundary, steps
    along it (halving the step until it flips), and bisects towards the original.
    """
    x0, values = trial.x, trial.x[0].numel()
    nearest = values**-1.5
    x = _halved(trial, x0, _noise(trial), _BLEND)
    x, round_ = _halved(trial, x0, x, nearest), 1
    while True:
        trial.recorder.live()
        distance = lengths(x - x0)
        reach = torch.full_like(distance, _PROBE) if round_ == 1 else math.sqrt(values) * nearest * distance
        update = _gradient(trial, x, reach, min(int(_FIRST * math.sqrt(round_)), _MOST), round_)
        stride, tried, left = distance / math.sqrt(round_), x.clone(), trial.recorder.live()
        while len(left):
            tried[left] = (x[left] + wide(stride[left], x) * update[left]).clamp(0, 1)
            won = flips(trial, tried[left], left)
            stride[left[~won]] /= 2
            left = trial.recorder.still_open(left[~won])
        x, round_ = _halved(trial, x0, tried, nearest), round_ + 1


def flips(trial: Trial, x: Tensor, samples: Tensor) -> Tensor:
    """(m,) bool; False for rows beyond the budget."""
    return trial.recorder.margins(x, samples)[0] < 0


def _noise(trial: Trial) -> Tensor:
    """Uniform noise (n, c, *size), drawn until it flips."""
    x, left, step = trial.x.clone(), trial.recorder.live(), 0
    while len(left):
        drawn = trial.uniform(left, step, trial.x[0].numel()).view(-1, *trial.x.shape[1:]).to(trial.x)
        won = flips(trial, drawn, left)
        x[left[won]] = drawn[won]
        left, step = trial.recorder.still_open(left[~won]), step + 1
    return x


def _halved(trial: Trial, x0: Tensor, flip: Tensor, nearest: float) -> Tensor:
    """Bisect from flips (n, c, *size) towards the originals until within the share `nearest` of the boundary."""
    high, low = x0.new_ones(len(x0)), x0.new_zeros(len(x0))
    while float((high - low).amax()) > nearest:
        every, middle = trial.recorder.live(), (low + high) / 2
        won = torch.zeros_like(high, dtype=torch.bool)
        won[every] = flips(trial, torch.lerp(x0, flip, wide(middle, x0))[every], every)
        high, low = torch.where(won, middle, high), torch.where(won, low, middle)
    return torch.lerp(x0, flip, wide(high, x0))


def _gradient(trial: Trial, x: Tensor, reach: Tensor, count: int, round_: int) -> Tensor:
    """Unit directions (n, c, *size) towards flips, from the signs of `count` probes of length `reach` (n,)."""
    live = trial.recorder.live()
    at, far = x[live], wide(reach[live], x)
    total, spread, signs = torch.zeros_like(at), torch.zeros_like(at), torch.zeros_like(reach[live])
    many = max(1, min(_TOGETHER, VALUES // max(1, at.numel())))
    for first in range(0, count, many):
        numbers = range(first, min(first + many, count))
        step = torch.stack([unit(trial.normal(live, round_ * _MOST + number)) for number in numbers])
        probe = (at + far * step).clamp(0, 1)
        step = (probe - at) / far
        won = flips(trial, probe.flatten(0, 1), live.repeat(len(numbers))).view(len(numbers), -1)
        sign = torch.where(won, 1.0, -1.0)
        total, spread = total + (wide(sign, step) * step).sum(0), spread + step.sum(0)
        signs = signs + sign.sum(0) / count
    some = signs.abs() < 1  # equal signs carry no more than their mean
    out = torch.zeros_like(x)
    out[live] = unit(torch.where(wide(some, at), total - wide(signs, at) * spread, total))
    return out
