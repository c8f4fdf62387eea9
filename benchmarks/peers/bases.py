"""BASES in its paper's norm (Cai et al. 2022, https://arxiv.org/abs/2208.03610)."""

from __future__ import annotations

from typing import NoReturn

from torch import Tensor

from benchmarks.peers.surrogate_steps import search_weights
from benchmarks.peers.trial import Trial

_STEPS, _STRIDE = 10, 2.5  # on the surrogates, and their total length in radii


def bases_linf(trial: Trial) -> NoReturn:
    """No value changes by more than `strength`, 16/255 in the paper."""
    most = trial.strength

    def step(rows: Tensor, weights: Tensor, push: Tensor) -> tuple[Tensor, Tensor]:
        x0 = trial.x[rows]
        for _ in range(_STEPS):
            slope = trial.ensemble.loss_gradient((x0 + push).clamp(0, 1), trial.y[rows], weights)
            push = (push + _STRIDE / _STEPS * most * slope.sign()).clamp(-most, most)
        return (x0 + push).clamp(0, 1), push

    search_weights(trial, step)
