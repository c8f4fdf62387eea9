"""The anytime view: every improvement of every sample, as (queries so far, distance), and when a sample has settled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rlab.core.distances import NAMES, Measure, measure
from rlab.core.env import Seen, State
from rlab.core.setting import Status
from rlab.progress import Progress, Tally, UnderWay, quiet
from rlab.victims.base import PHASES, QueryMeter

Until = Literal["flip", "steady", "budget"]
Improvements = tuple[tuple[int, float], ...]  # (queries, distance), the distance falling
DISTANCE_NAMES: dict[Measure, str] = {"l2": "L2", "map": "MAP", "l0": "points changed", "linf": "Linf"}
WINDOW, LEAST = 20, 0.02  # steady: the last 20 queries, or a quarter of all where that is more, brought less than 2%
WINDOW_OF_LABELS = 100  # the same where the model tells only labels, and most queries ask for directions


class Trace:
    """What n samples of a chunk have reached so far; `progress` hears of it."""

    def __init__(
        self,
        samples: int,
        bounds: tuple[float, float],
        distance: Measure = "l2",
        progress: Progress = quiet,
        window: int = WINDOW,
        cleanup: bool = False,  # flipped samples settle in a cleanup after the search
    ) -> None:
        self.bounds, self.distance, self.progress, self.window = bounds, distance, progress, window
        self.cleanup = cleanup
        self.own_unit = distance != "l0" and math.isinf(bounds[1] - bounds[0])  # a state counts such data by amplitude
        self.best = torch.full((samples,), math.inf)
        self.improvements: list[list[tuple[int, float]]] = [[] for _ in range(samples)]
        self.flip = {name: torch.full((samples,), math.nan) for name in NAMES}  # distances at the first flip

    def note(self, state: State, seen: Seen, meter: QueryMeter) -> None:
        """After a step: which samples have a flip that is nearer than before."""
        self._improve(state, seen, meter)
        self.progress(UnderWay(partial(self.tally, seen.sample, meter)))

    def _improve(self, state: State, seen: Seen, meter: QueryMeter) -> None:
        nearer = seen.kept & seen.won
        distance = seen.distance * seen.scale if self.own_unit else seen.distance
        samples, distance = seen.sample[nearer], distance[nearer]
        fresh = distance < self.best[samples]
        samples, distance = samples[fresh], distance[fresh]
        if not len(samples):
            return
        first = torch.isinf(self.best[samples])
        if first.any():
            rows = torch.isin(seen.sample, samples[first]).nonzero().flatten()
            there = rows.to(state.x.device)
            for name, values in measure(state.x0[there], state.x[there], state.assignment[there], self.bounds).items():
                self.flip[name][seen.sample[rows]] = values.cpu()
        self.best[samples] = distance
        spent = meter.spent(samples)
        for i, queries, far in zip(samples.tolist(), spent.tolist(), distance.tolist(), strict=True):
            self.improvements[i].append((queries, far))

    def tally(self, live: Tensor, meter: QueryMeter) -> Tally:
        """Counts over the chunk; the samples `live` have not settled."""
        spent, flipped = meter.counts.sum(1), self.best.isfinite()
        over = torch.ones_like(flipped)
        over[live.cpu()] = False
        attacked = spent > 2  # the others were wrong from the start
        waiting = flipped & (meter.counts[:, PHASES.index("cleanup")] == 0) if self.cleanup else torch.zeros_like(over)
        return Tally(
            done=int((over & ~waiting).sum()),
            flipped=int(flipped.sum()),
            held=int((over & attacked & ~flipped).sum()),
            queries=int(spent.sum()),
            best=tuple(self.best[flipped].tolist()),
            distance=DISTANCE_NAMES[self.distance],
        )

    def settled(self, seen: Seen, until: Until, meter: QueryMeter) -> Tensor:
        """(n,) bool: rows whose search is over by the user's choice, though the budget is not."""
        if until == "flip":
            return seen.won
        if until == "budget":
            return torch.zeros_like(seen.won)
        spent = meter.spent(seen.sample).tolist()
        steady = [self._steady(i, queries) for i, queries in zip(seen.sample.tolist(), spent, strict=True)]
        return seen.won & torch.tensor(steady)

    def _steady(self, sample: int, queries: int) -> bool:
        """Whether the next queries promise little: as many as the window brought less than a small share of the distance."""
        known, window = self.improvements[sample], max(self.window, queries // 4)
        if not known or queries - known[0][0] < window:
            return False
        before = min((far for at, far in known if at <= queries - window), default=math.inf)
        return known[-1][1] > (1 - LEAST) * before


def best_within(improvements: tuple[Improvements, ...], queries: int) -> Tensor:
    """(n,): the distance of the best flip within so many queries; infinity where there is none."""
    best = np.full(len(improvements), math.inf, np.float32)
    for i, flips in enumerate(improvements):
        if flips:
            best[i] = min((far for at, far in flips if at <= queries), default=math.inf)
    return torch.from_numpy(best)


def tally_of(status: Sequence[str], best: Sequence[float], queries: int, distance: Measure) -> Tally:
    """Samples that have ended, for the progress bar."""
    flipped, held, skipped = (
        sum(word == each for word in status) for each in (Status.SUCCEEDED, Status.SPENT, Status.SKIPPED)
    )
    failed = len(status) - flipped - held - skipped
    return Tally(len(status), flipped, held, failed, queries, tuple(best), DISTANCE_NAMES[distance])
