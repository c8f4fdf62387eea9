"""Accuracy by level, and by distance on an axis that does not depend on the models the sets were made against.

By level, a sample counts with its strongest file up to that level, or with the original if it has none, so every point
counts every sample that the victim got right. By distance, a sample is lost from the smallest L2 of its files that fool
a model; the axis ends at the set's reach, and the area under the curve is the mean of those distances over the reach.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np

from rlab.benchmarking.config import FLIP
from rlab.stats import DRAWS, Estimate, Floats, Rows, estimate, mean_estimate, resample, share_estimate

GRID = 41  # points of a curve
Record = dict[str, Any]


@dataclass(frozen=True)
class GradedSet:
    """One set, the files of its samples, and what models answered; a sample is known by the sha256 of its original."""

    name: str  # BENCHMARK/VICTIM
    own: tuple[str, ...]  # the models that it was made against
    levels: tuple[str, ...]  # original, then from mild to severe
    points: tuple[str, ...]  # the levels at which models are graded
    limits: tuple[float, ...]  # L2 of each level; 0 if it is not the same for every sample
    originals: tuple[str, ...]
    tried: tuple[bool, ...]  # (originals,): whether the victim got it right
    l2: tuple[tuple[float, ...], ...]  # (originals, levels); infinite without a file
    filters: tuple[tuple[str, ...], ...]  # (originals, levels): the main filter of each file
    reach: float  # largest L2 on the distance axis
    scale: str  # kind of data, palette and patches: distances are comparable if these are equal
    right: Mapping[str, tuple[tuple[bool, ...], ...]]  # by model, (originals, levels): correct answers to the files

    @cached_property
    def samples(self) -> tuple[str, ...]:
        """Those that the victim got right."""
        return tuple(compress(self.originals, self.tried))

    def _table(self, values: Sequence[Sequence[float]]) -> Floats:
        """(originals, levels)."""
        return np.array(values, float).reshape(len(self.originals), len(self.levels))

    @cached_property
    def counted(self) -> Rows:
        """(samples, points): the level of the file that counts, which is the strongest up to the point."""
        l2, columns = self._table(self.l2)[np.array(self.tried, bool)], list[Rows]()
        for at in map(self.levels.index, self.points):
            there = np.isfinite(l2[:, : at + 1])
            if at and FLIP not in self.points and self.levels[1] == FLIP:  # equal distances: the flip may lie beyond
                there[:, 1] &= l2[:, 1] <= self.limits[at]
            columns.append(at - there[:, ::-1].argmax(1))
        return np.stack(columns, 1)

    def _at_points(self, values: Sequence[Sequence[float]]) -> Floats:
        """(originals, levels) -> (samples, points): those of the files that count."""
        return np.take_along_axis(self._table(values)[np.array(self.tried, bool)], self.counted, 1)

    @cached_property
    def severity(self) -> tuple[float, ...]:
        """The mean L2 of each point."""
        return tuple(self._at_points(self.l2).mean(0).tolist()) if self.samples else (math.nan,) * len(self.points)

    def far(self, model: str, samples: Sequence[str], reach: float) -> Floats:
        """(samples,): the smallest L2 of a file that fools the model, at most the reach."""
        known, wrong = dict[str, float](), self._table(self.right[model]) == 0
        nearest = np.where(wrong, self._table(self.l2), np.inf).min(1)
        for sample, far in zip(self.originals, nearest.tolist(), strict=True):
            known[sample] = min(far, known.get(sample, math.inf))
        return np.minimum([known[sample] for sample in samples], reach)

    def area(self, model: str, seed: int) -> Record:
        """The area under accuracy by distance with its interval, and the quartiles of the distances."""
        far = self.far(model, self.samples, self.reach)
        area = estimate(lambda rows: far[rows].mean(1) / self.reach, len(far), seed)
        low, median, high = np.percentile(far, [25, 50, 75]).tolist() if len(far) else (math.nan,) * 3
        return {
            "set": self.name, "model": model, "area": area.value, "low": area.low, "high": area.high, "reach": self.reach,
            "quartile_low": low, "flip_distance": median, "quartile_high": high,
            "never": int((far >= self.reach).sum()), "samples": len(far),
        }  # fmt: skip

    def curve(self, model: str) -> Floats:
        """(4, points): L2 on an even grid from the originals to the reach, the accuracy there, and its interval."""
        far, rows = self.far(model, self.samples, self.reach), list[tuple[float, ...]]()
        for at in np.linspace(0, self.reach, GRID).tolist():
            held = share_estimate(float((far > min(at, self.reach * (1 - 1e-9))).sum()), len(far))
            rows.append((at, held.value, held.low, held.high))
        return np.array(rows).T

    def by_level(self, model: str, seed: int) -> list[Record]:
        """One row per point: accuracy on all samples of the set, and on those that have a file at this level."""
        correct, rows = self._at_points(self.right[model]), list[Record]()
        for at, point in enumerate(self.points):
            accuracy = mean_estimate(correct[:, at], seed)
            stored = correct[self.counted[:, at] == self.levels.index(point), at]
            rows.append({
                "set": self.name, "model": model, "level": point, "l2": self.severity[at],
                "accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high, "samples": len(correct),
                "stored": len(stored), "accuracy_stored": float(stored.mean()) if len(stored) else math.nan,
                "own": model in self.own,
            })  # fmt: skip
        return rows

    def by_distortion(self, model: str) -> list[Record]:
        """By filter and level: accuracy on the files whose patches mostly hold this filter."""
        counts = defaultdict[tuple[str, str], list[bool]](list)
        for filters, answers in zip(self.filters, self.right[model], strict=True):
            for name, level, right in zip(filters, self.levels, answers, strict=True):
                if name:
                    counts[name, level].append(right)
        about = {"set": self.name, "model": model}
        return [
            {**about, "distortion": name, "level": level, "accuracy": sum(each) / len(each), "samples": len(each)}
            for (name, level), each in sorted(counts.items())
        ]


@dataclass(frozen=True)
class Standing:
    """A model's rank among those compared, by the distances that fool it."""

    model: str
    area: Estimate  # mean over samples of the smallest distance in any set, divided by the reach
    flip_distance: Estimate  # median of these distances; NaN if the sets are on different axes
    quartiles: tuple[float, float]
    rank: int
    best: int  # rank in 95% of the bootstrap draws
    worst: int
    victim_of: tuple[str, ...]  # sets that were made against this model


@dataclass(frozen=True)
class Axis:
    """Sets with comparable distances, and the samples they share."""

    sets: tuple[int, ...]
    samples: tuple[str, ...]
    reach: float


def axes_of(sets: Sequence[GradedSet]) -> list[Axis]:
    """Group the sets: those with the same scale and common samples share an axis."""

    def shared(group: Sequence[int]) -> set[str]:
        """Samples that all of them have and one of the victims got right."""
        held = set.intersection(*(set(sets[number].originals) for number in group))
        return held & {sample for number in group for sample in sets[number].samples}

    groups: list[list[int]] = []
    for number, graded in enumerate(sets):
        fits = [each for each in groups if sets[each[0]].scale == graded.scale and shared([*each, number])]
        if graded.samples and fits:
            fits[0].append(number)
        elif graded.samples:
            groups.append([number])
    return [Axis(tuple(g), tuple(sorted(shared(g))), max(sets[n].reach for n in g)) for g in groups]


def ranking(sets: Sequence[GradedSet], models: Sequence[str], seed: int) -> list[Standing]:
    """All models, best first.

    Bootstrap draws use the same samples and sets for all models. A model's own sets are always included: without them
    nobody searched for its errors.
    """
    axes, standings, spread = axes_of(sets), list[Standing](), dict[str, Floats]()
    for model in models:
        own = [number for number, graded in enumerate(sets) if model in graded.own]
        far = [np.stack([sets[n].far(model, axis.samples, axis.reach) for n in axis.sets]) for axis in axes]
        drawn = [_drawn(each, axis, own, seed + at) for at, (each, axis) in enumerate(zip(far, axes, strict=True))]
        least = [each.min(0) for each in far]
        mean = float(np.mean([each.mean() / axis.reach for each, axis in zip(least, axes, strict=True)]))
        spread[model] = np.mean([means for means, _ in drawn], 0)
        distance, quartiles = Estimate(math.nan), (math.nan, math.nan)
        if len(axes) == 1:
            low, median, high = np.percentile(least[0], [25, 50, 75]).tolist()
            distance, quartiles = Estimate(median, *_ends(drawn[0][1])), (low, high)
        names = tuple(sets[number].name for number in own)
        standings.append(Standing(model, Estimate(mean, *_ends(spread[model])), distance, quartiles, 0, 0, 0, names))
    standings.sort(key=lambda standing: -standing.area.value)
    table = np.stack([spread[standing.model] for standing in standings])
    ranks = 1 + (table[None] > table[:, None]).sum(1)  # (models, draws)
    ends = [np.percentile(each, [2.5, 97.5], method="nearest").astype(int).tolist() for each in ranks]
    pairs = enumerate(zip(standings, ends, strict=True), start=1)
    return [replace(standing, rank=rank, best=best, worst=worst) for rank, (standing, (best, worst)) in pairs]


def _drawn(far: Floats, axis: Axis, own: Sequence[int], seed: int) -> tuple[Floats, Floats]:
    """far (sets, samples) -> of every draw the mean, divided by the reach, and the median."""
    always = [axis.sets.index(number) for number in own if number in axis.sets]
    sets: Rows = resample(len(far), seed + 2**16)
    samples = resample(far.shape[1], seed)
    least = (far[[*drawn, *always]].min(0)[rows] for drawn, rows in zip(sets, samples, strict=True))
    figures = np.array([(each.mean() / axis.reach, np.median(each)) for each in least]).reshape(DRAWS, 2)
    return figures[:, 0], figures[:, 1]


def _ends(spread: Floats) -> tuple[float, float]:
    low, high = np.percentile(spread, [2.5, 97.5])
    return float(low), float(high)
