"""Figures and their intervals, against numpy by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rlab import stats
from rlab.stats import Estimate, difference, median_estimate, share_estimate

VALUES = np.array([3.0, 1.0, 4.0, 1.5, 9.0, 2.6])
HOLES = np.array([3.0, math.nan, 4.0, 1.5, math.inf, 2.6])


def test_an_estimate_is_the_figure_of_all_samples_and_percentiles_of_the_draws() -> None:
    rows = np.random.default_rng(5).integers(0, 6, (stats.DRAWS, 6))
    assert (stats.resample(6, 5) == rows).all()
    spread = VALUES[rows].mean(1)
    estimate = stats.estimate(lambda rows: VALUES[rows].mean(1), 6, seed=5)
    assert estimate.value == pytest.approx(VALUES.mean())
    assert (estimate.low, estimate.high) == pytest.approx(tuple(np.percentile(spread, [2.5, 97.5])))
    assert stats.mean_estimate(VALUES, seed=5) == estimate
    assert stats.estimate(lambda rows: VALUES[rows].mean(1), 6, seed=6) != estimate


def test_only_what_is_finite_has_a_mean() -> None:
    finite = np.array([3.0, 4.0, 1.5, 2.6])
    assert stats.mean_estimate(HOLES) == stats.mean_estimate(finite)
    assert stats.mean_estimate(HOLES).value == pytest.approx(finite.mean())


def test_where_there_is_nothing_there_is_no_figure() -> None:
    for estimate in (stats.NOTHING, stats.mean_estimate(np.array([])), stats.mean_estimate(np.array([math.nan]))):
        assert all(map(math.isnan, (estimate.value, estimate.low, estimate.high)))
        assert not estimate.includes(0)
    assert math.isnan(stats.median_of(torch.tensor([])))
    assert math.isnan(stats.median_of(torch.ones(2), torch.tensor([False, False])))


def test_what_an_interval_includes() -> None:
    assert Estimate(1.2, 0.9, 1.4).includes(1)
    assert not Estimate(1.2, 1.1, 1.4).includes(1)


@given(st.lists(st.floats(-9, 9) | st.just(math.inf) | st.just(math.nan), min_size=1, max_size=9))
def test_medians_are_numpys_without_what_is_missing(values: list[float]) -> None:
    column = np.array(values)
    kept = column[~np.isnan(column)]
    expected = float(np.median(kept)) if len(kept) else math.nan
    assert stats.median(column, np.arange(len(column))[None]) == pytest.approx([expected], nan_ok=True)
    assert stats.median_of(torch.tensor(values, dtype=torch.float64)) == pytest.approx(expected, nan_ok=True)


def test_medians_of_draws_one_by_one() -> None:
    rows = np.array([[0, 1, 2, 3, 4, 5], [1, 1, 1, 1, 1, 1], [4, 4, 4, 4, 0, 1]])
    with np.errstate(all="ignore"):
        expected = [3.0, math.nan, math.inf]  # of 1.5 2.6 3 4 inf; of nothing; of 3 inf inf inf inf
    assert stats.median(HOLES, rows) == pytest.approx(expected, nan_ok=True)


def test_the_median_of_some() -> None:
    values = torch.tensor([1, 2, 7, 100])
    assert stats.median_of(values) == 4.5
    assert stats.median_of(values, torch.tensor([True, True, True, False])) == 2


def drawn(values: np.ndarray, of: str, seed: int) -> np.ndarray:
    """Seeds and samples with replacement, draw by draw."""
    rng = np.random.default_rng(seed)
    seeds = rng.integers(0, len(values), (stats.SEED_DRAWS, len(values)))
    rows = rng.integers(0, values.shape[1], (stats.SEED_DRAWS, values.shape[1]))
    figure = np.nanmedian if of == "median" else np.nanmean
    return np.array([figure(values[s][:, r]) for s, r in zip(seeds, rows, strict=True)])


@pytest.mark.parametrize("of", ["mean", "median"])
def test_over_seeds_both_seeds_and_samples_are_drawn(of: str) -> None:
    values = np.random.default_rng(0).random((3, 7))
    other = 1 + np.random.default_rng(1).random((3, 7))
    estimate = stats.over_seeds(values, of, seed=2)
    assert estimate.value == pytest.approx(np.median(values) if of == "median" else values.mean())
    spread = drawn(values, of, 2)
    low, high = np.percentile(spread, [2.5, 97.5], method="nearest")
    assert (estimate.low, estimate.high) == pytest.approx((low, high))
    ratio = stats.ratio_over_seeds(values, other, of, seed=2)
    low, high = np.percentile(spread / drawn(other, of, 2), [2.5, 97.5], method="nearest")  # the same draws of both
    assert (ratio.low, ratio.high) == pytest.approx((low, high))
    assert stats.ratio_over_seeds(values, values, of) == Estimate(1.0, 1.0, 1.0)


def test_no_flip_is_an_infinite_distance_not_a_missing_one() -> None:
    values = np.array([[1.0, 2.0, math.inf, math.inf, math.inf]])
    estimate = stats.over_seeds(values, "median")
    assert estimate.value == math.inf
    assert estimate.high == math.inf
    assert estimate.low in (1.0, 2.0)
    nothing = stats.over_seeds(np.full((2, 3), math.nan), "mean")
    assert math.isnan(nothing.value)
    assert math.isnan(nothing.low)


def test_a_share_of_few_has_a_wide_interval_even_at_its_ends() -> None:
    """Wilson's, as tables give it: 10 of 10 is 72.2% to 100%, 15 of 50 is 19.1% to 43.8%."""
    whole, part = share_estimate(10, 10), share_estimate(15, 50)
    assert (whole.low, whole.high) == pytest.approx((0.7225, 1.0), abs=1e-3)
    assert (part.low, part.high) == pytest.approx((0.191, 0.4375), abs=1e-3)
    assert math.isnan(share_estimate(0, 0).value)


def test_a_median_lies_between_order_statistics() -> None:
    """Of ten values the second and the ninth hold it with 97.9%, of six the ends with 96.9%, of five nothing does."""
    ten = median_estimate(torch.arange(1, 11))
    assert (ten.value, ten.low, ten.high) == (5.5, 2.0, 9.0)
    assert median_estimate(torch.arange(6)).low == 0
    assert math.isinf(median_estimate(torch.arange(5)).high)
    assert math.isinf(median_estimate(torch.tensor([])).high)


def test_a_difference_is_less_sure_than_its_parts() -> None:
    gained = difference(Estimate(0.8, 0.7, 0.9), Estimate(0.5, 0.46, 0.54))
    assert gained.value == pytest.approx(0.3)
    assert (gained.low, gained.high) == pytest.approx((0.3 - math.hypot(0.1, 0.04), 0.3 + math.hypot(0.1, 0.04)))
    assert math.isnan(difference(Estimate(1.0), Estimate(0.5)).low)
