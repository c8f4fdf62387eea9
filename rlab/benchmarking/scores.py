"""Accuracy by level, and by distance on an axis that does not depend on the models the sets were made against.

By level, a sample counts with its strongest file up to that level, or with the original if it has none, so every point
counts every sample that the victim got right. By distance, a sample is lost from the smallest L2 of its files that fool
a model; the axis ends at the set's reach, and the area under the curve is the mean of those distances over the reach.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlab.benchmarking.answers import Answers, Key
from rlab.benchmarking.config import FLIP, ORIGINAL
from rlab.benchmarking.folder import Benchmark
from rlab.results.result import Status
from rlab.stats import DRAWS, Estimate, Floats, Rows, estimate, mean_estimate, resample, share_estimate

GRID = 41  # points of a curve


@dataclass(frozen=True)
class Curve:
    """The points of one set: which file counts for every sample, and its L2; the same for all models."""

    benchmark: str
    victim: str
    fingerprint: str  # of the victim
    points: tuple[str, ...]  # original, then levels
    file_keys: tuple[tuple[Key, ...], ...]  # (samples, points)
    labels: NDArray[np.int64]  # (samples,)
    l2: Floats  # (samples, points)
    files: Mapping[str, tuple[int, tuple[tuple[Key, float], ...]]]  # label, files and L2, by the original's sha256
    tried: tuple[str, ...]  # samples that the victim got right
    reach: float  # largest L2 on the distance axis
    scale: tuple[Any, ...]  # kind of data, palette and patches: distances are comparable if these are equal

    @property
    def name(self) -> str:
        return f"{self.benchmark}/{self.victim}"

    def against(self, fingerprint: str) -> bool:
        """Whether the set was made against this model."""
        return fingerprint == self.fingerprint

    def correct(self, answers: Answers) -> Floats:
        """(samples, points): 1 where the model is right."""
        predicted = [[answers.predicted[key] for key in row] for row in self.file_keys]
        return (np.array(predicted).reshape(self.l2.shape) == self.labels[:, None]).astype(np.float64)

    def distances(self, answers: Answers) -> dict[str, float]:
        """By sample: the smallest L2 of its files that fool the model (0 for the original); infinite if none does."""
        return {
            sample: min((l2 for key, l2 in files if answers.predicted[key] != label), default=math.inf)
            for sample, (label, files) in self.files.items()
        }

    def tried_distances(self, answers: Answers) -> Floats:
        """(samples,): distances of the samples that the victim got right, at most the reach."""
        distances = self.distances(answers)
        return np.minimum([distances[sample] for sample in self.tried], self.reach)


def curves_of(benchmark: Benchmark) -> list[Curve]:
    return [_curve(benchmark, victim, fingerprint) for victim, fingerprint in benchmark.manifest.victims]


def _curve(benchmark: Benchmark, victim: str, fingerprint: str) -> Curve:
    absolute = benchmark.ladder.absolute
    points = (ORIGINAL, *(level for level in benchmark.levels if not (absolute and level == FLIP)))
    rows = {(row["place"], row["level"]): row for row in benchmark.rows if row["victim"] == victim}
    tried = [row for row in benchmark.of(victim, benchmark.base_level) if row["status"] != Status.SKIPPED.value]
    file_keys, l2 = [], []
    for sample in tried:
        keys: list[Key] = [("", ORIGINAL, sample["place"])]
        distances = [0.0]
        for point in points[1:]:
            row = rows[sample["place"], point]
            if not row["reached"] and absolute and distances[-1] == 0 and sample["reached"] and not benchmark.free:
                row = sample if sample["l2"] <= row["level_value"] else row  # the flip is below this level
            keys.append((victim, row["level"], sample["place"]) if row["reached"] else keys[-1])
            distances.append(row["l2"] if row["reached"] else distances[-1])
        file_keys.append(tuple(keys))
        l2.append(distances)
    labels, far = np.array([row["label"] for row in tried], np.int64), np.array(l2).reshape(len(tried), len(points))
    names = {row["place"]: row["sha256"] for row in benchmark.originals()}
    files: dict[str, tuple[int, tuple[tuple[Key, float], ...]]] = {}
    for row in benchmark.rows:
        if row["reached"] and row["victim"] in ("", victim):
            label, others = files.get(names[row["place"]], (row["label"], ()))
            key: Key = (row["victim"], row["level"], row["place"])
            files[names[row["place"]]] = label, (*others, (key, row["l2"]))
    return Curve(
        benchmark.name, victim, fingerprint, points, tuple(file_keys), labels, far, files,
        tuple(names[row["place"]] for row in tried), benchmark.reach, benchmark.scale,
    )  # fmt: skip


def area_row(curve: Curve, answers: Answers, seed: int) -> dict[str, Any]:
    """The area under accuracy by distance with its interval, and the quartiles of the distances."""
    far = curve.tried_distances(answers)
    area = estimate(lambda rows: far[rows].mean(1) / curve.reach, len(far), seed)
    low, median, high = np.percentile(far, [25, 50, 75]).tolist() if len(far) else (math.nan,) * 3
    return {
        "set": curve.name, "model": answers.model, "area": area.value, "low": area.low, "high": area.high,
        "reach": curve.reach, "quartile_low": low, "flip_distance": median, "quartile_high": high,
        "never": int((far >= curve.reach).sum()), "samples": len(far),
    }  # fmt: skip


def distance_rows(curve: Curve, answers: Answers) -> list[dict[str, Any]]:
    """Accuracy on an even grid of distances, from the originals to the reach."""
    far, rows = curve.tried_distances(answers), []
    for at in np.linspace(0, curve.reach, GRID).tolist():
        held = share_estimate(float((far > min(at, curve.reach * (1 - 1e-9))).sum()), len(far))
        figures = {"accuracy": held.value, "low": held.low, "high": held.high}
        rows.append({"set": curve.name, "model": answers.model, "l2": at, **figures})
    return rows


def level_rows(curve: Curve, answers: Answers, seed: int) -> list[dict[str, Any]]:
    """One row per point: accuracy on all samples of the set, and on those that have a file at this level."""
    correct, severity, rows = curve.correct(answers), curve.l2.mean(0), []
    for at, point in enumerate(curve.points):
        accuracy = mean_estimate(correct[:, at], seed)
        stored = [i for i, keys in enumerate(curve.file_keys) if keys[at][1] == point]
        rows.append({
            "set": curve.name, "model": answers.model, "level": point, "l2": float(severity[at]),
            "accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high, "samples": len(correct),
            "stored": len(stored), "accuracy_stored": float(np.mean(correct[stored, at])) if stored else math.nan,
        })  # fmt: skip
    return rows


def distortion_rows(benchmark: Benchmark, curve: Curve, answers: Answers) -> list[dict[str, Any]]:
    """Accuracy on stored files at each level, by the filter on most of their patches."""
    groups: dict[tuple[str, str], list[bool]] = {}
    for row in benchmark.rows:
        if row["victim"] == curve.victim and row["reached"]:
            predicted = answers.predicted[row["victim"], row["level"], row["place"]]
            groups.setdefault((row["distortion"], row["level"]), []).append(predicted == row["label"])
    return [
        {"set": curve.name, "model": answers.model, "distortion": distortion, "level": level,
         "accuracy": float(np.mean(right)), "samples": len(right)}
        for (distortion, level), right in sorted(groups.items())
    ]  # fmt: skip


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

    curves: tuple[int, ...]
    samples: tuple[str, ...]
    reach: float

    def distances(self, curves: Sequence[Curve], answers: Sequence[Answers]) -> Floats:
        """Distances (sets, samples) of one model, at most the reach; `answers` has one entry per curve."""
        by_set = [curves[number].distances(answers[number]) for number in self.curves]
        return np.minimum([[far[sample] for sample in self.samples] for far in by_set], self.reach)


def axes_of(curves: Sequence[Curve]) -> list[Axis]:
    """Group the sets: those with the same scale and common samples share an axis."""

    def shared(group: Sequence[int]) -> set[str]:
        """Samples that all of them have and one of the victims got right."""
        held = set.intersection(*(set(curves[number].files) for number in group))
        return held & {sample for number in group for sample in curves[number].tried}

    groups: list[list[int]] = []
    for number, curve in enumerate(curves):
        fits = [each for each in groups if curves[each[0]].scale == curve.scale and shared([*each, number])]
        if curve.tried and fits:
            fits[0].append(number)
        elif curve.tried:
            groups.append([number])
    return [Axis(tuple(g), tuple(sorted(shared(g))), max(curves[n].reach for n in g)) for g in groups]


def ranking(
    curves: Sequence[Curve], answers: Mapping[str, Sequence[Answers]], fingerprints: Mapping[str, str], seed: int
) -> list[Standing]:
    """All models, best first; `answers` has one entry per curve for each model.

    Bootstrap draws use the same samples and sets for all models. A model's own sets are always included: without them
    nobody searched for its errors.
    """
    axes, standings, spread = axes_of(curves), list[Standing](), dict[str, Floats]()
    for model, by_curve in answers.items():
        own = [number for number, curve in enumerate(curves) if curve.against(fingerprints[model])]
        far = [axis.distances(curves, by_curve) for axis in axes]
        drawn = [_drawn(each, axis, own, seed + at) for at, (each, axis) in enumerate(zip(far, axes, strict=True))]
        least = [each.min(0) for each in far]
        mean = float(np.mean([each.mean() / axis.reach for each, axis in zip(least, axes, strict=True)]))
        spread[model] = np.mean([means for means, _ in drawn], 0)
        distance, quartiles = Estimate(math.nan), (math.nan, math.nan)
        if len(axes) == 1:
            low, median, high = np.percentile(least[0], [25, 50, 75]).tolist()
            distance, quartiles = Estimate(median, *_ends(drawn[0][1])), (low, high)
        names = tuple(curves[number].name for number in own)
        standings.append(Standing(model, Estimate(mean, *_ends(spread[model])), distance, quartiles, 0, 0, 0, names))
    standings.sort(key=lambda standing: -standing.area.value)
    table = np.stack([spread[standing.model] for standing in standings])
    ranks = 1 + (table[None] > table[:, None]).sum(1)  # (models, draws)
    ends = [np.percentile(each, [2.5, 97.5], method="nearest").astype(int).tolist() for each in ranks]
    pairs = enumerate(zip(standings, ends, strict=True), start=1)
    return [replace(standing, rank=rank, best=best, worst=worst) for rank, (standing, (best, worst)) in pairs]


def _drawn(far: Floats, axis: Axis, own: Sequence[int], seed: int) -> tuple[Floats, Floats]:
    """far (sets, samples) -> of every draw the mean, divided by the reach, and the median."""
    always = [axis.curves.index(number) for number in own if number in axis.curves]
    sets: Rows = resample(len(far), seed + 2**16)
    samples = resample(far.shape[1], seed)
    least = (far[[*drawn, *always]].min(0)[rows] for drawn, rows in zip(sets, samples, strict=True))
    figures = np.array([(each.mean() / axis.reach, np.median(each)) for each in least]).reshape(DRAWS, 2)
    return figures[:, 0], figures[:, 1]


def _ends(spread: Floats) -> tuple[float, float]:
    low, high = np.percentile(spread, [2.5, 97.5])
    return float(low), float(high)
