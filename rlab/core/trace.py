"""Every improvement of every sample as (queries so far, distance), and when a search has become steady."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rlab.core.distances import NAMES, Measure, measure
from rlab.core.env import Snapshot, State
from rlab.core.setting import Status
from rlab.progress import Progress, Tally, UnderWay, quiet
from rlab.victims.account import PHASES
from rlab.victims.meter import QueryMeter

Until = Literal["flip", "steady", "budget"]
Improvements = tuple[tuple[int, float], ...]  # (queries, distance), with falling distance
DISTANCE_NAMES: dict[Measure, str] = {"l2": "L2", "map": "MAP", "l0": "points changed", "linf": "Linf"}
WINDOW, SHARE, LEAST = 200, 3, 0.02  # steady: the last 200 queries, or the last third if longer, gained less than 2%


class Trace:
    """The best flips of n samples so far; reports to `progress`."""

    def __init__(
        self,
        samples: int,
        bounds: tuple[float, float],
        distance: Measure = "l2",
        progress: Progress = quiet,
        cleanup: bool = False,  # flipped samples settle in a cleanup after the search
        attacked: Tensor | None = None,  # (n,) bool; the others were wrong from the start
    ) -> None:
        self.bounds, self.distance, self.progress = bounds, distance, progress
        self.cleanup = cleanup
        unbounded = math.isinf(bounds[1] - bounds[0])
        self.own_unit = distance != "l0" and unbounded  # a state measures such data in amplitudes
        self.best = torch.full((samples,), math.inf)
        self.attacked = torch.ones(samples, dtype=torch.bool) if attacked is None else attacked
        self.improvements: list[list[tuple[int, float]]] = [[] for _ in range(samples)]
        self.flip = {name: torch.full((samples,), math.nan) for name in NAMES}  # distances at the first flip

    def note(self, state: State, after: Snapshot, meter: QueryMeter) -> None:
        """Record which samples improved in a step."""
        self._improve(state, after, meter)
        self.progress(UnderWay(partial(self.tally, after.sample, meter)))

    def _improve(self, state: State, after: Snapshot, meter: QueryMeter) -> None:
        nearer = after.accepted & after.flipped
        distance = after.distance * after.scale if self.own_unit else after.distance
        samples, distance = after.sample[nearer], distance[nearer]
        fresh = distance < self.best[samples]
        samples, distance = samples[fresh], distance[fresh]
        if not len(samples):
            return
        first = torch.isinf(self.best[samples])
        if first.any():
            rows = torch.isin(after.sample, samples[first]).nonzero().flatten()
            there = rows.to(state.x.device)
            for name, values in measure(state.x0[there], state.x[there], state.assignment[there], self.bounds).items():
                self.flip[name][after.sample[rows]] = values.cpu()
        self.best[samples] = distance
        spent = meter.spent(samples)
        for i, queries, far in zip(samples.tolist(), spent.tolist(), distance.tolist(), strict=True):
            self.improvements[i].append((queries, far))

    def tally(self, live: Tensor, meter: QueryMeter) -> Tally:
        """Counts over the settled samples of the chunk; the samples `live` have not settled."""
        attacked, flipped = self.attacked, self.best.isfinite()
        over = torch.ones_like(flipped)
        over[live.cpu()] = False
        if self.cleanup:
            over &= ~flipped | (meter.counts[:, PHASES.index("cleanup")] > 0)
        counts = (over, over & flipped, over & attacked & ~flipped, over & ~attacked & ~flipped)
        return Tally(*(int(each.sum()) for each in counts))

    def settled(self, after: Snapshot, until: Until, meter: QueryMeter) -> Tensor:
        """(n,) bool: rows whose search ends before their budget does, by the user's choice of `until`."""
        if until == "flip":
            return after.flipped
        if until == "budget":
            return torch.zeros_like(after.flipped)
        spent = meter.spent(after.sample).tolist()
        steady = [self._steady(i, queries) for i, queries in zip(after.sample.tolist(), spent, strict=True)]
        return after.flipped & torch.tensor(steady)

    def _steady(self, sample: int, queries: int) -> bool:
        """Whether the queries of the last window reduced the distance by less than a small share."""
        known, window = self.improvements[sample], max(WINDOW, queries // SHARE)
        if not known or queries - known[0][0] < window:
            return False
        before = min((far for at, far in known if at <= queries - window), default=math.inf)
        return known[-1][1] > (1 - LEAST) * before


def best_within(improvements: tuple[Improvements, ...], queries: int) -> Tensor:
    """(n,): the distance of the best flip within `queries` queries; infinity if there is none."""
    best = np.full(len(improvements), math.inf, np.float32)
    for i, flips in enumerate(improvements):
        if flips:
            best[i] = min((far for at, far in flips if at <= queries), default=math.inf)
    return torch.from_numpy(best)


def tally_of(status: Sequence[str]) -> Tally:
    """Finished samples, for the progress bar."""
    counted = (Status.SUCCEEDED, Status.SPENT, Status.SKIPPED)
    flipped, resisted, skipped = (sum(word == each for word in status) for each in counted)
    return Tally(len(status), flipped, resisted, skipped, len(status) - flipped - resisted - skipped)
