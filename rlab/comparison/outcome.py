"""What one attack did to each sample, in the same terms for ours and others', and figures with 95% bootstrap intervals.

Every draw takes the same samples of all attacks that are compared.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlab.core.distances import Measure
from rlab.core.trace import Improvements, best_within
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.results.result import WITHIN
from rlab.stats import NOTHING, Estimate, Floats, Rows, estimate, median, over_seeds
from rlab.victims.base import Victim

SURROGATES = "surrogates' gradients"  # what attacks need, as tables say it
FREE_PIXELS, PALETTE = "free pixels", "a palette"


@dataclass(frozen=True)
class AttackOutcome:
    """One entry a sample. `queries` are rows from its clean prediction to the end of its attack, cleanup included."""

    attacked: Tensor  # (n,) bool: the model had it right to begin with
    succeeded: Tensor  # (n,) bool, predicted once more from the perturbed input
    queries: Tensor  # (n,) int64
    l2: Tensor  # (n,) float in the data's [0, 1]; NaN where it did not succeed
    budget: int
    rows: int  # every row that reached the model, verification and rows sent after the flip included
    seconds: float = 0.0
    improvements: tuple[Improvements, ...] = ()  # (n) every nearer flip as (queries so far, distance)
    distance: Measure = "l2"  # which distance those are

    def __post_init__(self) -> None:
        """Where improvements were not kept, the flip an attack ended with is the only one."""
        ends = zip(self.queries.tolist(), self.l2.tolist(), self.succeeded.tolist(), strict=True)
        kept = self.improvements or ((),) * len(self)
        filled = [flips or (((at, l2),) if won else ()) for flips, (at, l2, won) in zip(kept, ends, strict=True)]
        object.__setattr__(self, "improvements", tuple(filled))

    def __len__(self) -> int:
        return len(self.attacked)

    @property
    def charged(self) -> Tensor:
        """(n,) queries, where a sample that was not flipped counts as the whole budget."""
        return torch.where(self.succeeded, self.queries, self.budget)

    def best_within(self, queries: int) -> Tensor:
        """(n,): the distance of the best flip within so many queries; infinity where there is none or it did not hold."""
        return best_within(self.improvements, queries).masked_fill(~self.succeeded, math.inf)

    def first(self, samples: int) -> AttackOutcome:
        """The same of the first `samples`; `rows` stay those of all."""
        columns = ("attacked", "succeeded", "queries", "l2", "improvements")
        return replace(self, **{name: getattr(self, name)[:samples] for name in columns})

    def plain(self) -> dict[str, Any]:
        """As plain values, fit for JSON, which knows no NaN."""
        return {
            "attacked": self.attacked.int().tolist(),
            "succeeded": self.succeeded.int().tolist(),
            "queries": self.queries.tolist(),
            "l2": [None if math.isnan(distance) else round(distance, 5) for distance in self.l2.tolist()],
            "budget": self.budget,
            "rows": self.rows,
            "seconds": round(self.seconds, 1),
            "improvements": [[[at, round(distance, 5)] for at, distance in flips] for flips in self.improvements],
            "distance": self.distance,
        }

    def exact(self) -> dict[str, Any]:
        """As `plain`, nothing rounded."""
        l2 = [None if math.isnan(distance) else distance for distance in self.l2.tolist()]
        improvements = [[[at, distance] for at, distance in flips] for flips in self.improvements]
        return self.plain() | {"l2": l2, "improvements": improvements, "seconds": self.seconds}

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> AttackOutcome:
        """An outcome from plain values; improvements and distance are optional."""
        return cls(
            attacked=torch.tensor(values["attacked"], dtype=torch.bool),
            succeeded=torch.tensor(values["succeeded"], dtype=torch.bool),
            queries=torch.tensor(values["queries"], dtype=torch.int64),
            l2=torch.tensor([math.nan if v is None else v for v in values["l2"]], dtype=torch.float64),
            budget=int(values["budget"]),
            rows=int(values["rows"]),
            seconds=float(values["seconds"]),
            improvements=tuple(tuple((at, far) for at, far in flips) for flips in values.get("improvements", ())),
            distance=values.get("distance", "l2"),
        )


class Contender(ABC):
    """An attack that can be compared: any that flips as many samples as it can within a budget of queries a sample."""

    @abstractmethod
    def __call__(self, victim: Victim, batch: Batch, budget: int, seed: int) -> AttackOutcome:
        """Attacks every sample the victim has right; no more than `budget` rows of each count."""

    @property
    def needs(self) -> tuple[str, ...]:
        """What it must be given, in a few words: scores or labels, surrogates, free pixels or a palette."""
        return ()

    def check(self, batch: Batch, budget: int) -> None:  # noqa: B027 (most run on anything)
        """InputError where it cannot be run on such data; asked of all contenders before the first query."""


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
    flipped ones only; L2 over flipped ones; the median distance within so many queries over all, infinite without a flip."""

    attacked: int
    succeeded: int
    success: Estimate
    queries: Estimate
    queries_won: Estimate
    queries_mean: Estimate  # over all, as `queries`, which is the median
    l2: Estimate
    rows: int
    within: Mapping[int, Estimate]

    @classmethod
    def of(cls, outcome: AttackOutcome, seed: int = 0) -> Figures:
        c = Columns.of(outcome)
        n = len(c.charged)
        best = {q: outcome.best_within(q)[outcome.attacked].double().numpy()[None] for q in WITHIN}
        return cls(
            attacked=n,
            succeeded=int(c.succeeded.sum()),
            success=estimate(lambda rows: c.succeeded[rows].mean(1), n, seed),
            queries=estimate(lambda rows: median(c.charged, rows), n, seed),
            queries_won=estimate(lambda rows: median(c.won, rows), n, seed),
            queries_mean=estimate(lambda rows: c.charged[rows].mean(1), n, seed),
            l2=estimate(lambda rows: median(c.l2, rows), n, seed),
            rows=outcome.rows,
            within={q: over_seeds(distances, "median", seed) if n else NOTHING for q, distances in best.items()},
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
