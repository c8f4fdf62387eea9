"""Accuracy by level, and by distance on an axis that does not depend on the models the sets were made against.

By level, a sample counts with its strongest file up to that level, or with the original if it has none, so every point
counts every sample that the victim got right. By distance, a sample is lost from the smallest L2 of its files that fool
a model; the axis ends at the set's reach, and the area under the curve is the mean of those distances over the reach.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from rlab.stats import DRAWS, Estimate, Floats, Rows, estimate, mean_estimate, resample, share_estimate

GRID = 41  # points of a curve


@dataclass(frozen=True)
class GradedSet:
    """One set; a sample is known by the sha256 of its original."""

    name: str  # BENCHMARK/VICTIM
    mark: str  # fingerprint of the victim
    points: tuple[str, ...]  # original, then levels
    originals: tuple[str, ...]
    tried: tuple[str, ...]  # those that the victim got right
    l2: tuple[tuple[float, ...], ...]  # (tried, points) of the file that counts
    stored: tuple[tuple[bool, ...], ...]  # (tried, points): whether the sample has a file at this very level
    reach: float  # largest L2 on the distance axis
    scale: str  # kind of data, palette and patches: distances are comparable if these are equal

    @property
    def samples(self) -> int:
        return len(self.tried)

    @cached_property
    def severity(self) -> tuple[float, ...]:
        """The mean L2 of each point."""
        means = np.mean(self.l2, 0).tolist() if self.tried else [math.nan] * len(self.points)
        return tuple(means)


@dataclass(frozen=True)
class Grade:
    """The answers of one model to the files of a set."""

    set: str
    model: str
    correct: tuple[tuple[bool, ...], ...]  # (tried, points)
    distances: tuple[float, ...]  # (originals,): smallest L2 of a file that fools the model; infinite if none does
    distortions: tuple[tuple[str, str, int, int], ...]  # main filter, level, files, and how many the model gets right

    def far(self, graded: GradedSet, samples: Sequence[str], reach: float) -> Floats:
        """(samples,): their distances, at most the reach."""
        known = dict[str, float]()
        for sample, far in zip(graded.originals, self.distances, strict=True):
            known[sample] = min(far, known.get(sample, math.inf))
        return np.minimum([known[sample] for sample in samples], reach)


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


def area_row(graded: GradedSet, grade: Grade, seed: int) -> dict[str, Any]:
    """The area under accuracy by distance with its interval, and the quartiles of the distances."""
    far = grade.far(graded, graded.tried, graded.reach)
    area = estimate(lambda rows: far[rows].mean(1) / graded.reach, len(far), seed)
    low, median, high = np.percentile(far, [25, 50, 75]).tolist() if len(far) else (math.nan,) * 3
    return {
        "set": graded.name, "model": grade.model, "area": area.value, "low": area.low, "high": area.high,
        "reach": graded.reach, "quartile_low": low, "flip_distance": median, "quartile_high": high,
        "never": int((far >= graded.reach).sum()), "samples": len(far),
    }  # fmt: skip


def distance_rows(graded: GradedSet, grade: Grade) -> list[dict[str, Any]]:
    """Accuracy on an even grid of distances, from the originals to the reach."""
    far, rows = grade.far(graded, graded.tried, graded.reach), []
    for at in np.linspace(0, graded.reach, GRID).tolist():
        held = share_estimate(float((far > min(at, graded.reach * (1 - 1e-9))).sum()), len(far))
        figures = {"accuracy": held.value, "low": held.low, "high": held.high}
        rows.append({"set": graded.name, "model": grade.model, "l2": at, **figures})
    return rows


def level_rows(graded: GradedSet, grade: Grade, seed: int) -> list[dict[str, Any]]:
    """One row per point: accuracy on all samples of the set, and on those that have a file at this level."""
    shape = len(graded.tried), len(graded.points)
    correct, stored = np.array(grade.correct, float).reshape(shape), np.array(graded.stored, bool).reshape(shape)
    rows = []
    for at, point in enumerate(graded.points):
        accuracy, own = mean_estimate(correct[:, at], seed), correct[stored[:, at], at]
        rows.append({
            "set": graded.name, "model": grade.model, "level": point, "l2": graded.severity[at],
            "accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high, "samples": len(correct),
            "stored": len(own), "accuracy_stored": float(own.mean()) if len(own) else math.nan,
        })  # fmt: skip
    return rows


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
        return held & {sample for number in group for sample in sets[number].tried}

    groups: list[list[int]] = []
    for number, graded in enumerate(sets):
        fits = [each for each in groups if sets[each[0]].scale == graded.scale and shared([*each, number])]
        if graded.tried and fits:
            fits[0].append(number)
        elif graded.tried:
            groups.append([number])
    return [Axis(tuple(g), tuple(sorted(shared(g))), max(sets[n].reach for n in g)) for g in groups]


def ranking(
    sets: Sequence[GradedSet], grades: Mapping[str, Sequence[Grade]], marks: Mapping[str, str], seed: int
) -> list[Standing]:
    """All models, best first; `grades` has one entry per set for each model.

    Bootstrap draws use the same samples and sets for all models. A model's own sets are always included: without them
    nobody searched for its errors.
    """
    axes, standings, spread = axes_of(sets), list[Standing](), dict[str, Floats]()
    for model, by_set in grades.items():
        own = [number for number, graded in enumerate(sets) if graded.mark == marks[model]]
        far = [np.stack([by_set[n].far(sets[n], axis.samples, axis.reach) for n in axis.sets]) for axis in axes]
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
