"""One attack as benchmarks run it, and the statistics of its curves."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from benchmarks.raw import Curves
from benchmarks.tables import table
from rlab.core.trace import best_within
from rlab.data.batch import Batch
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.stats import Estimate, Floats, over_seeds, ratio_over_seeds
from rlab.victims.base import Victim

NATURAL = ("gaussian_noise", "gaussian_blur", "dead_pixel", "illuminate")
HEADLINE_SEEDS = 3  # of the rows in README
SURROGATES = ("resnet20", "robust_all_conv", "mixer", "all_conv", "inverted")


def correct(victim: Victim, batch: Batch) -> Batch:
    """The samples that the victim classifies correctly."""
    found = torch.cat([victim(x.to(victim.device)).argmax(1).cpu() for x in batch.x.split(256)])
    return batch[(found == batch.y).nonzero().flatten().tolist()]


def attack(victim: Victim, batch: Batch, **options: Any) -> AttackResult:
    """Attack the batch; a GPU takes it in one chunk."""
    chunk = {} if victim.device.type == "cpu" else {"chunk": len(batch)}
    return run_attack(make_attack(batch, **{**chunk, **options}), victim, batch)


def flips(result: AttackResult, uncounted: int = 0, factor: float = 1.0) -> Curves:
    """Each attacked sample's improvements; `uncounted` queries are left out, distances are multiplied by `factor`."""
    pairs = zip(result.improvements, result.attacked.tolist(), strict=True)
    return tuple(tuple((q - uncounted, factor * far) for q, far in flips) for flips, attacked in pairs if attacked)


def within(seeds: Sequence[Curves], queries: int) -> Floats:
    """(seeds, n): distance of the best flip within this number of queries, infinite where there is none."""
    return np.stack([best_within(curves, queries).double().numpy() for curves in seeds])


def median(seeds: Sequence[Curves], queries: int) -> Estimate:
    return over_seeds(within(seeds, queries), "median")


def flipped(seeds: Sequence[Curves], queries: int) -> Estimate:
    """The share of samples with a flip."""
    return over_seeds(np.isfinite(within(seeds, queries)).astype(np.float64), "mean")


def ratio(ours: Sequence[Curves], other: Sequence[Curves], queries: int) -> Estimate:
    """Our median over the other's, on the samples and seeds that both have."""
    count, seeds = min(len(ours[0]), len(other[0])), min(len(ours), len(other))
    cut = [[curves[:count] for curves in each[:seeds]] for each in (ours, other)]
    return ratio_over_seeds(within(cut[0], queries), within(cut[1], queries), "median")


def over_best(ours: Sequence[Curves], others: Iterable[Sequence[Curves]], queries: int) -> Estimate:
    """Our median over the smallest of the others'; 0 where only we have one, NaN where nobody has."""
    return ratio(ours, min(others, key=lambda seeds: float(np.median(within(seeds, queries)))), queries)


def tails(rows: Mapping[str, Sequence[Curves]], queries: int) -> str:
    """A table of queries to the first flip and of distances at the end: the median, the mean of flips, the 95th percentile."""
    body = []
    for name, seeds in rows.items():
        first = np.array([flips[0][0] if flips else math.inf for curves in seeds for flips in curves], dtype=np.float64)
        first[first > queries] = math.inf
        cells = (f"{value:.4g}" for values in (first, within(seeds, queries).ravel()) for value in _tail(values))
        body.append((name, f"{np.isfinite(first).mean():.1%}", *cells))
    heads = [f"{what}, {figure}" for what in ("first flip", "at the end") for figure in ("median", "mean", "95th")]
    return table(("queries and distances", "flipped", *heads), body)


def _tail(values: Floats) -> tuple[float, float, float]:
    """The median and the 95th percentile of all values, where infinity counts, and between them the mean of the finite ones."""
    high = np.percentile(values, 95, method="higher")  # a value between two would not exist beside an infinite one
    finite = values[np.isfinite(values)]
    return float(np.median(values)), float(finite.mean()) if len(finite) else math.inf, float(high)


@dataclass(frozen=True)
class Pairs:
    """What a signed-rank test of paired distances can tell, two-sided at 5% and with a power of 80%."""

    count: int
    spread: float  # standard deviation of the logarithm of a pair's ratio

    @classmethod
    def of(cls, ours: Floats, other: Floats) -> Pairs:
        """ours, other: (n,) distances, NaN where a sample was not attacked; the spread from quartiles, which may be infinite."""
        both = ~np.isnan(ours) & ~np.isnan(other) & ~(np.isinf(ours) & np.isinf(other))
        with np.errstate(divide="ignore"):
            logs = np.log(ours[both] / other[both])
        low, high = np.percentile(logs, [25, 75], method="nearest")
        return cls(len(logs), float(high - low) / 1.349)

    def needed(self, ratio: float) -> int:
        """How many pairs tell this ratio of distances from 1."""
        return math.ceil((_POWER * self.spread / math.log(ratio)) ** 2)

    @property
    def least(self) -> float:
        """The smallest ratio above 1 that so many pairs tell."""
        return math.exp(_POWER * self.spread / math.sqrt(self.count))

    def sentence(self, samples: str, ratio: float = 1.2) -> str:
        tell = (
            f"{self.count} {samples} that both nets classify correctly tell a ratio of {self.least:.2f} or more from 1"
        )
        return f"{tell} (signed ranks, 5%, power 80%); a ratio of {ratio:g} needs {self.needed(ratio)}."


_POWER = math.sqrt(math.pi / 3) * (1.96 + 0.8416)  # ranks need pi/3 times as many normal values as means do
