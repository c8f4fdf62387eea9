"""Figures, ratios and intervals of outcomes, checked by hand."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rlab.comparison import AttackOutcome, Figures, l2_ratio, query_ratio
from rlab.errors import DataError
from rlab.stats import median
from rlab.storage.files import read_tree, write_tree
from tests.comparison.planted import outcome


def test_figures_by_hand() -> None:
    f = Figures.of(outcome([10, 20, 30, 40], [1.0, 2.0, None, 4.0], budget=100))
    assert f.success.value == 0.75
    assert f.queries.value == 30.0  # of 10, 20, 40 and 100
    assert f.queries_won.value == 20.0
    assert f.l2.value == 2.0
    assert f.queries.low <= f.queries.value <= f.queries.high
    assert 0 <= f.success.low <= f.success.high <= 1
    nothing = Figures.of(outcome([100, 100], [None, None]))
    assert nothing.queries.value == 100
    assert math.isnan(nothing.l2.value)
    assert math.isnan(nothing.queries_won.value)


def test_best_distances_by_number_of_queries() -> None:
    """A sample without a flip counts as infinite; without improvements, the final flip is the only one."""
    f = Figures.of(outcome([10, 20, 30, 40], [1.0, 2.0, None, 4.0], budget=100))
    assert {q: e.value for q, e in f.within.items()} == {5: math.inf, 20: math.inf, 50: 3.0, 200: 3.0}
    assert (f.within[50].low, f.within[50].high) == (1.0, math.inf)
    improved = replace(outcome([10, 20], [1.0, 2.0]), improvements=(((2, 5.0), (10, 1.0)), ((4, 3.0), (20, 2.0))))
    assert [Figures.of(improved).within[q].value for q in (5, 20)] == [4.0, 1.5]


def test_the_median_ignores_nan_as_numpys_does() -> None:
    values = np.array([3.0, np.nan, 1.0, 8.0, np.nan, 5.0])
    rows = np.random.default_rng(0).integers(0, 6, (50, 6))
    with warnings.catch_warnings(action="ignore"):  # numpy warns about rows that are all NaN
        np.testing.assert_allclose(median(values, rows), np.nanmedian(values[rows], axis=1))


def test_intervals_narrow_with_samples_and_hold_the_truth() -> None:
    draw = np.random.default_rng(1)
    widths = []
    for n in (20, 2000):
        values = draw.lognormal(3, 1, n)
        q = Figures.of(outcome([int(v) + 1 for v in values], [1.0] * n, budget=10**6)).queries
        widths.append(q.high - q.low)
        assert q.low <= 21 <= q.high  # exp(3), rounded like the draws
    assert widths[1] < widths[0] / 4


def test_ratios_are_paired() -> None:
    ours = outcome([1, 10, 100, 1000], [1.0, 2.0, 3.0, 4.0], budget=10**6)
    other = outcome([3, 30, 300, 3000], [2.0, 4.0, 6.0, 8.0], budget=10**6)
    times = query_ratio(ours, other)
    assert (times.value, times.low, times.high) == (3.0, 3.0, 3.0)  # every paired draw gives 3
    assert l2_ratio(ours, other).value == 2.0


def test_outcomes_that_do_not_match_are_refused() -> None:
    two, one = outcome([1, 2], [1.0, 1.0]), outcome([1], [1.0])
    for ratio in (query_ratio, l2_ratio):
        with pytest.raises(DataError):
            ratio(two, one)


def test_outcomes_survive_a_step(tmp_path: Path) -> None:
    before = replace(outcome([10, 20], [1 / 3, None]), improvements=(((3, 2.5), (10, 1 / 3)), ()), distance="linf")
    write_tree(tmp_path / "step", dict(vars(before)))
    after = AttackOutcome.stored(read_tree(tmp_path / "step"))
    assert after.l2[0] == before.l2[0]
    assert (after.distance, after.budget, after.rows) == (before.distance, before.budget, before.rows)
    assert torch.isnan(after.l2[1])
    assert after.improvements == before.improvements
    assert before.first(1).queries.tolist() == [10]
