"""Figures over seeds and samples, with 95% bootstrap intervals that draw both."""

from __future__ import annotations

import math
import warnings

import numpy as np
from numpy.typing import NDArray

from rlab.comparison import Estimate
from rlab.hardening.measure import Floats

DRAWS = 1000
MEDIANS = frozenset({"agent_l2", "agent_queries"})  # the other figures are shares, told as means


def reduced(name: str, values: Floats) -> Floats:
    """(draws, m) -> (draws,): mean or median, NaN left out; an infinite median is one no budget reached."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a row of NaN has no figure, and gives NaN
        return np.nanmedian(values, 1) if name in MEDIANS else np.nanmean(values, 1)


def resamples(seeds: int, samples: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which seeds (draws, s) and which samples (draws, n) each draw holds."""
    chance = np.random.default_rng(seed)
    return chance.integers(0, seeds, (DRAWS, seeds)), chance.integers(0, samples, (DRAWS, samples))


def over_seeds(name: str, values: Floats, seed: int = 0) -> Estimate:
    """values (seeds, n) -> the figure over all, its interval over seeds and samples."""
    value = float(reduced(name, values.reshape(1, -1))[0])
    return _interval(value, _draws(name, values, seed))


def ratio_over_seeds(name: str, ours: Floats, other: Floats, seed: int = 0) -> Estimate:
    """How many times the other's figure ours is, on the same draws."""
    value = _ratio(reduced(name, ours.reshape(1, -1)), reduced(name, other.reshape(1, -1)))[0]
    return _interval(float(value), _ratio(_draws(name, ours, seed), _draws(name, other, seed)))


def _draws(name: str, values: Floats, seed: int) -> Floats:
    which, rows = resamples(len(values), values.shape[1], seed)
    chosen = values[which[:, :, None], rows[:, None, :]]
    return reduced(name, chosen.reshape(DRAWS, -1))


def _ratio(ours: Floats, other: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return ours / other


def _interval(value: float, spread: Floats) -> Estimate:
    spread = spread[~np.isnan(spread)]
    if not len(spread):
        return Estimate(value, math.nan, math.nan)
    low, high = np.percentile(spread, [2.5, 97.5], method="nearest")  # between two infinities there is no mean
    return Estimate(value, float(low), float(high))
