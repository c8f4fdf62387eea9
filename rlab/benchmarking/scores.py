"""Accuracy against severity. A sample stands, at each point of the curve, on the strongest of its sets up to there:

the untouched original where it was not flipped that early. So every point counts every sample its victim had right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlab.benchmarking.answers import Answers, Key
from rlab.benchmarking.config import ORIGINAL
from rlab.benchmarking.folder import Benchmark
from rlab.core.result import Status
from rlab.stats import Estimate, Floats, estimate, mean_estimate, resample


@dataclass(frozen=True)
class Curve:
    """The points of one set: where every sample stands and how far that is, the same for all models."""

    benchmark: str
    victim: str
    fingerprint: str  # of the victim
    points: tuple[str, ...]  # original, then levels
    stands: tuple[tuple[Key, ...], ...]  # (samples, points)
    labels: NDArray[np.int64]  # (samples,)
    l2: Floats  # (samples, points)

    @property
    def name(self) -> str:
        return f"{self.benchmark}/{self.victim}"

    @property
    def severity(self) -> Floats:
        """Mean L2 of each point."""
        return self.l2.mean(0)

    def correct(self, answers: Answers) -> Floats:
        """(samples, points) 1 where the model is right."""
        predicted = [[answers.predicted[key] for key in row] for row in self.stands]
        return (np.array(predicted).reshape(self.l2.shape) == self.labels[:, None]).astype(np.float64)

    def area(self, correct: Floats, rows: NDArray[np.int64]) -> Floats:
        """Mean accuracy over the range of severity, (draws,): the area under accuracy by mean L2, over its width."""
        x = self.severity
        accuracy = correct[rows].mean(1)  # (draws, points)
        width = x[-1] - x[0]
        if width <= 0:
            return accuracy.mean(1)
        return ((accuracy[:, 1:] + accuracy[:, :-1]) / 2 * np.diff(x)).sum(1) / width

    def area_estimate(self, answers: Answers, seed: int) -> Estimate:
        """Of all samples as they are, with its interval; NaN where there are none."""
        correct = self.correct(answers)
        return estimate(lambda rows: self.area(correct, rows), len(correct), seed)


def curves_of(benchmark: Benchmark) -> list[Curve]:
    return [_curve(benchmark, victim, fingerprint) for victim, fingerprint in benchmark.manifest.victims]


def _curve(benchmark: Benchmark, victim: str, fingerprint: str) -> Curve:
    ladder = benchmark.ladder
    absolute = ladder.kind == "l2" and bool(ladder.levels)
    points = (ORIGINAL, *(ladder.names[1:] if absolute else ladder.names))
    rows = {(row["place"], row["level"]): row for row in benchmark.rows if row["victim"] == victim}
    tried = [row for row in benchmark.of(victim) if row["status"] != Status.SKIPPED.value]
    stands, l2 = [], []
    for sample in tried:
        keys: list[Key] = [("", ORIGINAL, sample["place"])]
        distances = [0.0]
        for point in points[1:]:
            row = rows[sample["place"], point]
            if not row["reached"] and absolute and distances[-1] == 0 and sample["reached"]:
                row = sample if sample["l2"] <= row["level_value"] else row  # the flip lies below this level
            keys.append((victim, row["level"], sample["place"]) if row["reached"] else keys[-1])
            distances.append(row["l2"] if row["reached"] else distances[-1])
        stands.append(tuple(keys))
        l2.append(distances)
    labels, far = np.array([row["label"] for row in tried], np.int64), np.array(l2).reshape(len(tried), len(points))
    return Curve(benchmark.name, victim, fingerprint, points, tuple(stands), labels, far)


def level_rows(curve: Curve, answers: Answers, seed: int) -> list[dict[str, Any]]:
    """One row a point: accuracy over all samples of the set, and over those that have a file at this very level."""
    correct, rows = curve.correct(answers), []
    for at, point in enumerate(curve.points):
        accuracy = mean_estimate(correct[:, at], seed)
        stored = [i for i, keys in enumerate(curve.stands) if keys[at][1] == point]
        sure = [answers.probability[curve.stands[i][at]] for i in stored]
        rows.append(
            {
                "set": curve.name, "model": answers.model, "level": point, "l2": float(curve.severity[at]),
                "accuracy": accuracy.value, "low": accuracy.low, "high": accuracy.high, "samples": len(correct),
                "stored": len(stored), "accuracy_stored": float(np.mean(correct[stored, at])) if stored else math.nan,
                "probability": float(np.mean(sure)) if stored else math.nan,
            }
        )  # fmt: skip
    return rows


def distortion_rows(benchmark: Benchmark, curve: Curve, answers: Answers) -> list[dict[str, Any]]:
    """Accuracy on stored files by the filter that covers most of their patches, at each level."""
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
    """A model's place among those compared, by mean area over all sets."""

    model: str
    area: Estimate
    rank: int
    best: int  # of its ranks in 95% of the draws
    worst: int
    victim_of: tuple[str, ...]  # sets that were made against this very model


def ranking(
    curves: Sequence[Curve], answers: Mapping[str, Sequence[Answers]], fingerprints: Mapping[str, str], seed: int
) -> list[Standing]:
    """Best first. `answers` by model, one for each curve. Draws take the same samples of a set for all models."""
    spread: dict[str, Floats] = {}
    value: dict[str, float] = {}
    for model, by_curve in answers.items():
        sets = [
            (number, *pair) for number, pair in enumerate(zip(curves, by_curve, strict=True)) if len(pair[0].labels)
        ]
        areas = [
            curve.area(curve.correct(of), resample(len(curve.labels), seed + number)) for number, curve, of in sets
        ]
        spread[model] = np.mean(areas, 0)
        value[model] = float(
            np.mean([curve.area(curve.correct(of), np.arange(len(curve.labels))[None]) for _, curve, of in sets])
        )
    order = sorted(value, key=lambda model: -value[model])
    table = np.stack([spread[model] for model in order])
    ranks = 1 + (table[None] > table[:, None]).sum(1)  # (models, draws): how many are better
    standings = []
    for at, model in enumerate(order):
        low, high = np.percentile(table[at], [2.5, 97.5])
        best, worst = np.percentile(ranks[at], [2.5, 97.5], method="nearest")
        own = tuple(curve.name for curve in curves if curve.fingerprint == fingerprints[model])
        area = Estimate(value[model], float(low), float(high))
        standings.append(Standing(model, area, at + 1, int(best), int(worst), own))
    return standings
