"""Figures of attacks that are compared, with 95% bootstrap intervals: every draw takes the same samples of all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rlab.comparison.outcome import AttackOutcome
from rlab.errors import InputError
from rlab.stats import NOTHING, Estimate, Floats, Rows, estimate, median


@dataclass(frozen=True)
class Columns:
    """An outcome's attacked samples as arrays (n,)."""

    succeeded: Floats
    charged: Floats  # queries, the whole budget where it failed
    won: Floats  # queries, NaN where it failed
    l2: Floats  # NaN where it failed

    @classmethod
    def of(cls, outcome: AttackOutcome) -> Columns:
        rows = outcome.attacked.numpy()
        done = outcome.succeeded.numpy()[rows]
        charged = outcome.charged.numpy()[rows].astype(np.float64)
        l2 = np.where(done, outcome.l2.numpy()[rows].astype(np.float64), np.nan)
        return cls(done.astype(np.float64), charged, np.where(done, charged, np.nan), l2)


@dataclass(frozen=True)
class Figures:
    """Of one attack: success over attacked samples; queries over all of them, a failure counted at the budget, and over
    flipped ones only; L2 over flipped ones."""

    attacked: int
    succeeded: int
    success: Estimate
    queries: Estimate
    queries_won: Estimate
    l2: Estimate
    rows: int

    @classmethod
    def of(cls, outcome: AttackOutcome, seed: int = 0) -> Figures:
        c = Columns.of(outcome)
        n = len(c.charged)
        return cls(
            attacked=n,
            succeeded=int(c.succeeded.sum()),
            success=estimate(lambda rows: c.succeeded[rows].mean(1), n, seed),
            queries=estimate(lambda rows: median(c.charged, rows), n, seed),
            queries_won=estimate(lambda rows: median(c.won, rows), n, seed),
            l2=estimate(lambda rows: median(c.l2, rows), n, seed),
            rows=outcome.rows,
        )


def query_ratio(ours: AttackOutcome, other: AttackOutcome, seed: int = 0) -> Estimate:
    """Median queries of the other over ours, on the same samples; above 1 means the other needs more."""
    return ratio(ours, other, lambda c: c.charged, seed)


def l2_ratio(ours: AttackOutcome, other: AttackOutcome, seed: int = 0) -> Estimate:
    """Median L2 of the other over ours; above 1 means the other distorts more."""
    return ratio(ours, other, lambda c: c.l2, seed)


def ratio(ours: AttackOutcome, other: AttackOutcome, column: Callable[[Columns], Floats], seed: int) -> Estimate:
    """Paired: a draw takes the same samples of both."""
    a, b = _paired(ours, other)
    return estimate(lambda rows: median(column(b), rows) / median(column(a), rows), len(a.charged), seed)


def queries_at_l2(settings: Sequence[AttackOutcome], l2: float, seed: int = 0) -> Estimate:
    """Median queries one attack would need at a median L2, between its settings; NaN outside of them."""
    columns = [Columns.of(outcome) for outcome in settings]
    _check_settings(columns)
    if not _inside(columns, l2):
        return NOTHING
    return estimate(lambda rows: _interpolate(columns, rows, np.full(len(rows), l2)), len(columns[0].charged), seed)


def ratio_at_equal_l2(ours: AttackOutcome, settings: Sequence[AttackOutcome], seed: int = 0) -> Estimate:
    """How many times our median queries the other attack needs at our median L2; paired; NaN outside its settings."""
    pairs = [_paired(ours, outcome) for outcome in settings]
    mine, columns = pairs[0][0], [other for _, other in pairs]
    _check_settings(columns)
    if not _inside(columns, _whole_median(mine.l2)):
        return NOTHING
    return estimate(
        lambda rows: _interpolate(columns, rows, median(mine.l2, rows)) / median(mine.charged, rows),
        len(mine.charged),
        seed,
    )


def _interpolate(columns: Sequence[Columns], rows: Rows, l2: Floats) -> Floats:
    """Straight lines through (log L2, log queries) of the settings; the outer lines go on, which only draws may need."""
    x = np.log(np.stack([median(c.l2, rows) for c in columns], 1))
    y = np.log(np.stack([median(c.charged, rows) for c in columns], 1))
    order = x.argsort(1)
    x, y = np.take_along_axis(x, order, 1), np.take_along_axis(y, order, 1)
    want = np.log(l2)[:, None]
    left = ((x < want).sum(1, keepdims=True) - 1).clip(0, x.shape[1] - 2)
    x0, x1, y0, y1 = (np.take_along_axis(v, left + step, 1)[:, 0] for v in (x, y) for step in (0, 1))
    result: Floats = np.exp(y0 + (y1 - y0) * (want[:, 0] - x0) / (x1 - x0))
    return result


def _inside(columns: Sequence[Columns], l2: float) -> bool:
    medians = [_whole_median(c.l2) for c in columns]
    return min(medians) <= l2 <= max(medians)


def _whole_median(values: Floats) -> float:
    return float(median(values, np.arange(len(values))[None])[0])


def _paired(ours: AttackOutcome, other: AttackOutcome) -> tuple[Columns, Columns]:
    if len(ours) != len(other) or not (ours.attacked == other.attacked).all():
        raise InputError("the two attacks did not attack the same samples: compare them on the same data and model")
    return Columns.of(ours), Columns.of(other)


def _check_settings(columns: Sequence[Columns]) -> None:
    if len(columns) < 2:
        raise InputError(f"expected at least two settings of an attack to go between, got {len(columns)}")
    if len({len(c.charged) for c in columns}) > 1:
        raise InputError("the settings of an attack were not run on the same samples")
