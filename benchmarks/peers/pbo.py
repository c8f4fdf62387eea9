"""P-BO: a Gaussian process whose mean is the surrogates' loss (Cheng et al. 2024, https://arxiv.org/abs/2405.19098)."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor

from benchmarks.peers.trial import Trial, ask_margins, margins
from rlab.core.vectors import lengths, unit, wide

_STEPS, _STRIDE = 10, 2.5  # of the search for the next query, and its total length in radii
_OPTIMISM = 3.0  # standard deviations below the mean that the search aims at
_NOISE = 1e-3  # added to the diagonal


def pbo(trial: Trial) -> NoReturn:
    """Within an L2 of `strength`, query where the process expects the lowest margin, minus three standard deviations.

    The prior mean is the surrogates' mean margin times a factor, which is refitted after each query by maximum likelihood, as in
    the paper's adaptive integration; the kernel is a Gaussian whose width is the radius. The clean answer is the first datum.
    """
    recorder, x0, radius = trial.recorder, trial.x, trial.strength
    clean, _ = margins(recorder.clean, trial.y)
    points, said = torch.zeros_like(x0)[:, None], clean[:, None]  # (n, t, c, *size), (n, t)
    guessed = _surrogate(trial, torch.arange(len(x0), device=x0.device), x0)[0][:, None]
    while True:
        rows = recorder.live()
        process = _Process(points[rows].flatten(2), said[rows], guessed[rows], radius)
        delta = points[rows, process.said.argmin(1)]
        for _ in range(_STEPS):
            _, slope = _surrogate(trial, rows, (x0[rows] + delta).clamp(0, 1))
            pull = process.slope(delta.flatten(1)).view_as(delta)
            down = wide(process.factor, slope) * slope + pull
            delta = delta - _STRIDE / _STEPS * radius * unit(down)
            delta = delta * wide((radius / lengths(delta).clamp(min=1e-12)).clamp(max=1), delta)
        x = (x0[rows] + delta).clamp(0, 1)
        margin, _ = ask_margins(recorder, x, rows)
        value, _ = _surrogate(trial, rows, x)
        here = torch.zeros_like(x0)
        here[rows] = x - x0[rows]
        points = torch.cat([points, here[:, None]], 1)
        said = torch.cat([said, torch.zeros_like(clean).scatter(0, rows, margin.nan_to_num())[:, None]], 1)
        guessed = torch.cat([guessed, torch.zeros_like(clean).scatter(0, rows, value)[:, None]], 1)


def _surrogate(trial: Trial, samples: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """The surrogates' mean margin (m,) at x (m, c, *size), and its gradient."""
    low, span = trial.ensemble.scale
    values, slopes = trial.ensemble.prior.gradients(x * span + low, (trial.y[samples],), lambda s, y: margins(s, y)[0])
    return values.mean(1), slopes.mean(1) * span


class _Process:
    """The posterior after t answers at points (m, t, d), of margins said (m, t) where the surrogates guessed (m, t)."""

    def __init__(self, points: Tensor, said: Tensor, guessed: Tensor, width: float) -> None:
        self.points, self.said, self.width = points, said, width
        among = torch.stack([torch.cdist(each, each) for each in points])
        eye = torch.eye(said.shape[1], device=said.device)
        self.inverse = torch.linalg.inv(self._kernel(among) + _NOISE * eye)
        fitted = torch.einsum("mt,mtu,mu->m", guessed, self.inverse, said)
        self.factor = (fitted / torch.einsum("mt,mtu,mu->m", guessed, self.inverse, guessed)).clamp(min=0)
        self.left = said - self.factor[:, None] * guessed
        self.scale = self.left.square().mean(1).clamp(min=1e-6)  # variance of what the surrogates do not explain

    def _kernel(self, distance: Tensor) -> Tensor:
        return (-distance.square() / (2 * self.width**2)).exp()

    def slope(self, at: Tensor) -> Tensor:
        """The gradient (m, d) of mean minus optimism x deviation, without the surrogates' part."""
        away = at[:, None] - self.points
        near = self._kernel(away.norm(dim=2))  # (m, t)
        weighed = torch.einsum("mtu,mu->mt", self.inverse, near)
        deviation = ((1 - (near * weighed).sum(1)).clamp(min=1e-6)).sqrt()
        pull = torch.einsum("mtu,mu->mt", self.inverse, self.left)
        bold = _OPTIMISM * (self.scale.sqrt() / deviation)[:, None] * weighed
        return -((near * (pull + bold))[..., None] * away).sum(1) / self.width**2
