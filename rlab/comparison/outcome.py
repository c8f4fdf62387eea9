"""What an attack did to each sample, and figures of it with 95% bootstrap intervals.

Each bootstrap draw takes the same samples of all compared attacks.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from rlab.core.distances import Measure
from rlab.core.trace import Improvements, best_within
from rlab.data.batch import Batch
from rlab.errors import DataError
from rlab.progress import Progress, quiet
from rlab.results.result import WITHIN
from rlab.stats import NOTHING, Estimate, Floats, estimate, median, over_seeds, share_estimate
from rlab.victims.base import Victim

SURROGATES = "surrogates' gradients"  # what an attack needs, in the words of the table
FREE_PIXELS, PALETTE = "free pixels", "a palette"
COLUMNS = ("attacked", "succeeded", "queries", "l2")


@dataclass(frozen=True)
class AttackOutcome:
    """One entry per sample. `queries` counts rows from its clean prediction to the end of its attack, cleanup included."""

    attacked: Tensor  # (n,) bool: the model classified it correctly
    succeeded: Tensor  # (n,) bool, verified by another prediction of the perturbed input
    queries: Tensor  # (n,) int64
    l2: Tensor  # (n,) float, with the data scaled to [0, 1]; NaN without success
    budget: int
    rows: int  # all rows that reached the model, verification and rows after the flip included
    improvements: tuple[Improvements, ...] = ()  # (n) each nearer flip as (queries so far, distance)
    distance: Measure = "l2"  # the distance in `improvements`

    def __post_init__(self) -> None:
        """Without recorded improvements, the final flip is the only one."""
        ends = zip(self.queries.tolist(), self.l2.tolist(), self.succeeded.tolist(), strict=True)
        kept = self.improvements or ((),) * len(self)
        filled = [flips or (((at, l2),) if won else ()) for flips, (at, l2, won) in zip(kept, ends, strict=True)]
        object.__setattr__(self, "improvements", tuple(filled))

    def __len__(self) -> int:
        return len(self.attacked)

    @property
    def charged(self) -> Tensor:
        """(n,) queries; a sample without a flip counts as the whole budget."""
        return torch.where(self.succeeded, self.queries, self.budget)

    def best_within(self, queries: int) -> Tensor:
        """(n,): the distance of the best flip within this number of queries; infinity without a verified flip."""
        return best_within(self.improvements, queries).masked_fill(~self.succeeded, math.inf)

    def column(self, name: Literal["succeeded", "charged", "first", "won", "l2"]) -> Floats:
        """The attacked samples (m,): queries `charged`, up to the `first` flip, or of flips (`won`: NaN after a failure); L2."""
        kept, done = self.attacked, self.succeeded
        if name == "first":
            at = torch.tensor([flips[0][0] if flips else self.budget for flips in self.improvements])
            return torch.where(done, at, self.budget)[kept].double().numpy()
        values = {"won": self.charged, "succeeded": done, "charged": self.charged, "l2": self.l2}[name].double()
        return (values.masked_fill(~done, math.nan) if name in ("won", "l2") else values)[kept].numpy()

    def first(self, samples: int) -> AttackOutcome:
        """The outcome of the first `samples`; `rows` still counts all."""
        return replace(self, **{name: getattr(self, name)[:samples] for name in (*COLUMNS, "improvements")})

    @classmethod
    def stored(cls, values: Mapping[str, Any]) -> AttackOutcome:
        """The outcome with these fields, as a step of a run stores them."""
        flips = tuple(tuple((at, far) for at, far in each) for each in values["improvements"])
        return cls(**{**values, "improvements": flips})


class Contender(ABC):
    """An attack in a comparison: it flips as many samples as it can within a budget of queries per sample."""

    @abstractmethod
    def __call__(
        self, victim: Victim, batch: Batch, budget: int, seed: int, progress: Progress = quiet
    ) -> AttackOutcome:
        """Attack every sample that the victim classifies correctly, with at most `budget` counted rows each."""

    @property
    def needs(self) -> tuple[str, ...]:
        """What it needs, in a few words: scores or labels, surrogates, free pixels or a palette."""
        return ()

    def check(self, batch: Batch, budget: int) -> None:  # noqa: B027 (most accept any data)
        """Raise InputError if it cannot run on this data; called for all contenders before the first query."""


@dataclass(frozen=True)
class Figures:
    """Figures of one attack, over its attacked samples; medians unless the name says otherwise."""

    success: Estimate
    queries: Estimate  # a failure counts as the budget
    first: Estimate  # up to the first flip; a failure counts as the budget
    queries_won: Estimate  # over flipped samples
    queries_mean: Estimate  # a failure counts as the budget
    l2: Estimate  # over flipped samples
    rows: int
    within: Mapping[int, Estimate]  # best distance by number of queries, infinite without a flip

    @classmethod
    def of(cls, outcome: AttackOutcome, seed: int = 0) -> Figures:
        success, charged, n = outcome.column("succeeded"), outcome.column("charged"), int(outcome.attacked.sum())
        best = {q: outcome.best_within(q)[outcome.attacked].double().numpy()[None] for q in WITHIN}

        def middle(values: Floats) -> Estimate:
            return estimate(lambda rows: median(values, rows), n, seed)

        return cls(
            success=share_estimate(success.sum(), n),
            queries=middle(charged),
            first=middle(outcome.column("first")),
            queries_won=middle(outcome.column("won")),
            queries_mean=estimate(lambda rows: charged[rows].mean(1), n, seed),
            l2=middle(outcome.column("l2")),
            rows=outcome.rows,
            within={q: over_seeds(distances, "median", seed) if n else NOTHING for q, distances in best.items()},
        )


def query_ratio(ours: AttackOutcome, other: AttackOutcome, seed: int = 0) -> Estimate:
    """The other's median queries divided by ours, on the same samples; above 1 means that the other needs more."""
    return _ratio(ours, other, "charged", seed)


def l2_ratio(ours: AttackOutcome, other: AttackOutcome, seed: int = 0) -> Estimate:
    """The other's median L2 divided by ours; above 1 means that the other distorts more."""
    return _ratio(ours, other, "l2", seed)


def _ratio(ours: AttackOutcome, other: AttackOutcome, name: Literal["charged", "l2"], seed: int) -> Estimate:
    if len(ours) != len(other) or not (ours.attacked == other.attacked).all():
        raise DataError("the two attacks did not attack the same samples: compare them on the same data and model")
    a, b = ours.column(name), other.column(name)
    return estimate(lambda rows: median(b, rows) / median(a, rows), len(a), seed)
