"""Statistics with 95% bootstrap intervals; everything that is compared uses the same draws of samples."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # torch is slow to import and large, and the server can do without
    from torch import Tensor

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]
DRAWS = 2000
SEED_DRAWS = 1000  # if seeds are drawn too


@dataclass(frozen=True)
class Estimate:
    """A value and its 95% interval; NaN if there is none."""

    value: float
    low: float = math.nan
    high: float = math.nan

    def includes(self, value: float) -> bool:
        """Whether the interval includes the value: a ratio whose interval includes 1 shows no difference."""
        return self.low <= value <= self.high


NOTHING = Estimate(math.nan)


def resample(samples: int, seed: int, count: int = DRAWS) -> Rows:
    """(count, samples): the samples of each bootstrap draw."""
    return np.random.default_rng(seed).integers(0, samples, (count, samples))


def estimate(of: Callable[[Rows], Floats], samples: int, seed: int = 0) -> Estimate:
    """`of` maps rows (draws, n) to (draws,); its value on all samples, with the percentiles over the draws."""
    if not samples:
        return NOTHING
    value = float(of(np.arange(samples)[None])[0])
    spread = of(resample(samples, seed))
    return _interval(value, spread[np.isfinite(spread)], "linear")


def mean_estimate(values: Floats, seed: int = 0) -> Estimate:
    """The mean of the finite values (n,)."""
    known = values[np.isfinite(values)]
    return estimate(lambda rows: known[rows].mean(1), len(known), seed)


def share_estimate(hits: float, tries: int) -> Estimate:
    """A share with Wilson's interval, which unlike a bootstrap's is not empty if all or none hit."""
    if not tries:
        return NOTHING
    share, z2 = hits / tries, 1.96**2
    middle, half = share + z2 / (2 * tries), 1.96 * math.sqrt(share * (1 - share) / tries + z2 / (4 * tries**2))
    low, high = ((middle + side * half) / (1 + z2 / tries) for side in (-1, 1))
    return Estimate(share, max(0.0, min(low, share)), min(1.0, max(high, share)))


def median_estimate(values: Tensor) -> Estimate:
    """The median of values (n,) with its 95% order-statistics interval, which needs six values."""
    ordered, below, cut, ways = values.double().sort().values.tolist(), 0, 0, 1
    outcomes = 2 ** len(ordered)
    while 40 * (below + ways) <= outcomes:  # binomial tail: `below` of all outcomes leave the median below this value
        below, cut, ways = below + ways, cut + 1, ways * (len(ordered) - cut) // (cut + 1)
    ends = (ordered[cut - 1], ordered[-cut]) if cut else (-math.inf, math.inf)
    return Estimate(median_of(values), *ends)


def difference(after: Estimate, before: Estimate) -> Estimate:
    """Difference of two independent values with Newcombe's interval; it is too wide if they share samples."""
    value = after.value - before.value
    if not all(map(math.isfinite, (value, after.low, after.high, before.low, before.high))):
        return Estimate(value)
    down = math.hypot(after.value - after.low, before.high - before.value)
    return Estimate(value, value - down, value + math.hypot(after.high - after.value, before.value - before.low))


def median(values: Floats, rows: Rows) -> Floats:
    """values (n,), rows (draws, n) -> (draws,): medians without NaN; NaN if nothing is left."""
    chosen = np.sort(values[rows], axis=1)  # NaN come last
    count = (~np.isnan(chosen)).sum(1)
    at = np.stack([np.maximum(count - 1, 0) // 2, count // 2], 1).clip(max=chosen.shape[1] - 1)
    middle: Floats = np.take_along_axis(chosen, at, 1).mean(1)
    return np.where(count > 0, middle, np.nan)


def median_of(values: Tensor, rows: Tensor | None = None) -> float:
    """The median of values (n,), or of those in `rows` (n,) bool; of an even number, the mean of the middle two."""
    chosen = (values if rows is None else values[rows]).double().cpu().numpy()
    return float(median(chosen, np.arange(len(chosen))[None])[0]) if len(chosen) else math.nan


def over_seeds(values: Floats, of: str, seed: int = 0) -> Estimate:
    """values (seeds, n) -> their mean or median (`of`) without NaN; the interval draws seeds and samples."""
    return _interval(float(_reduced(values.reshape(1, -1), of)[0]), _seed_draws(values, of, seed), "nearest")


def ratio_over_seeds(ours: Floats, other: Floats, of: str, seed: int = 0) -> Estimate:
    """The ratio of two means or medians on the same draws."""
    value = _ratio(_reduced(ours.reshape(1, -1), of), _reduced(other.reshape(1, -1), of))[0]
    return _interval(float(value), _ratio(_seed_draws(ours, of, seed), _seed_draws(other, of, seed)), "nearest")


def _reduced(values: Floats, of: str) -> Floats:
    """(draws, m) -> (draws,); a median is infinite if the budget was too small."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a row of NaN gives NaN
        return np.nanmedian(values, 1) if of == "median" else np.nanmean(values, 1)


def _seed_draws(values: Floats, of: str, seed: int) -> Floats:
    rng = np.random.default_rng(seed)
    seeds = rng.integers(0, len(values), (SEED_DRAWS, len(values)))
    rows = rng.integers(0, values.shape[1], (SEED_DRAWS, values.shape[1]))
    return _reduced(values[seeds[:, :, None], rows[:, None, :]].reshape(SEED_DRAWS, -1), of)


def _ratio(ours: Floats, other: Floats) -> Floats:
    with np.errstate(all="ignore"):
        return ours / other


def _interval(value: float, spread: Floats, method: str) -> Estimate:
    """Use the method `nearest` if draws may be infinite: two infinities have no mean."""
    spread = spread[~np.isnan(spread)]
    if not len(spread):
        return Estimate(value)
    low, high = np.percentile(spread, [2.5, 97.5], method=method)  # type: ignore[call-overload]
    return Estimate(value, float(low), float(high))
