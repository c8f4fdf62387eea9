"""SurFree: labels alone, without estimates of gradients (Maho et al. 2021, https://arxiv.org/abs/2011.12807)."""

from __future__ import annotations

import math
from typing import NoReturn

import torch
from torch import Tensor

from benchmarks.peers.pixel_steps import bisected, flipping_noise, flips
from benchmarks.peers.trial import Trial, still_open
from rlab.core.vectors import lengths, unit, wide
from rlab.policies.pixels.basis import cosines

_BLEND = 1e-3  # precision of the first flip between the original and noise
_WIDEST = math.pi / 6  # first angle
_GROW, _SHRINK = 1.1, 0.9  # of the widest angle, after a success and a failure
_ANGLES = (1.0, -1.0, 0.75, -0.75, 0.5, -0.5, 0.25, -0.25)  # tried in turn, in widest angles
_HALVINGS = 4  # of the angle, once a sign is known
_SHARE = 0.5  # of the frequencies along each axis that directions have
_REMEMBERED = 100  # directions that a new one is orthogonal to


def surfree(trial: Trial) -> NoReturn:
    """From a flip at the boundary, walk along the circle through it and the original, in planes of random directions.

    All points of such a circle are nearer than the flip. The first angle that flips is widened by bisection. Directions have
    low frequencies and are orthogonal to the last hundred.
    """
    x0, recorder = trial.x, trial.recorder
    x = bisected(trial, x0, flipping_noise(trial), _BLEND)
    widest, turn, past = x0.new_full((len(x0),), _WIDEST), 0, list[Tensor]()
    while True:
        rows = recorder.live()
        far = lengths(x - x0)
        towards = unit(x - x0)
        aside = _orthogonal(_smooth(trial, turn), [towards, *past[-_REMEMBERED:]])
        past, turn = [*past[-_REMEMBERED:], aside], turn + 1

        def point(samples: Tensor, angle: Tensor) -> Tensor:
            along = wide(angle.cos(), x0) * towards[samples] + wide(angle.sin(), x0) * aside[samples]  # noqa: B023
            return (x0[samples] + wide(far[samples] * angle.cos(), x0) * along).clamp(0, 1)  # noqa: B023

        best, left = torch.zeros_like(far), rows
        for share in _ANGLES:
            left = still_open(recorder, left)
            if not len(left):
                break
            won = flips(trial, point(left, share * widest[left]), left)
            best[left[won]], left = share * widest[left[won]], left[~won]
        found, low = rows[best[rows] != 0], best
        high = best + best.sign() * widest / 4  # of the same sign, where a flip failed or was not tried
        widest[found] = (widest[found] * _GROW).clamp(max=math.pi / 2)
        widest[left] = widest[left] * _SHRINK
        for _ in range(_HALVINGS):
            found = still_open(recorder, found)
            if not len(found):
                break
            middle = (low + high) / 2
            won = flips(trial, point(found, middle[found]), found)
            low[found[won]], high[found[~won]] = middle[found[won]], middle[found[~won]]
        done = low.nonzero().flatten()
        x[done] = point(done, low[done])


def _smooth(trial: Trial, turn: int) -> Tensor:
    """Noise (n, c, *size) of the lowest frequencies, by the cosine transform of every axis."""
    x0 = trial.x
    noise = trial.normal(torch.arange(len(x0), device=x0.device), 100_000 + turn)
    for axis, length in enumerate(x0.shape[2:], 2):
        low = (torch.arange(length, device=x0.device) < max(1.0, _SHARE * length)).to(x0)
        matrix = cosines(length, x0.device).to(x0)
        noise = torch.movedim(torch.movedim(noise, axis, -1) * low @ matrix, -1, axis)
    return noise


def _orthogonal(direction: Tensor, others: list[Tensor]) -> Tensor:
    for other in others:
        direction = direction - other * wide((direction * other).flatten(1).sum(1), direction)
    return unit(direction)
