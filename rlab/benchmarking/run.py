"""Grading models on benchmarks: one call, every figure, nothing asked twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlab.benchmarking.answers import Answers, Questions
from rlab.benchmarking.corruptions import corruptions_of
from rlab.benchmarking.folder import Benchmark, Row
from rlab.benchmarking.ladder import FLIP, ORIGINAL
from rlab.benchmarking.scores import Curve, Standing, curves_of, distortion_rows, level_rows, ranking
from rlab.errors import InputError
from rlab.progress import Progress, quiet
from rlab.runs.fingerprint import model_fingerprint
from rlab.victims.base import Victim

Figure = dict[str, Any]
Figures = tuple[Figure, ...]


@dataclass(frozen=True)
class BenchmarkReport:
    """What models do on benchmarks, as rows of plain values. Sets are named BENCHMARK/VICTIM."""

    models: tuple[str, ...]
    curves: tuple[Curve, ...]
    levels: Figures  # set, model, level: accuracy over all samples and over stored files, mean L2
    distortions: Figures  # set, model, main filter, level: accuracy
    transfer: Figures  # set, model, level: accuracy on the stored files; own: made against this very model
    areas: Figures  # set, model: area under accuracy by severity
    corruptions: Figures  # set, model, level, corruption: accuracy at equal mean L2 beside the set's own
    standings: tuple[Standing, ...]
    asked: Mapping[str, int]  # rows that reached each model this time
    seed: int = 0

    @property
    def shared_level(self) -> str:
        """Where sets are compared: the flip, or the severest level where the ladder is of absolute distances."""
        levels = list(dict.fromkeys(row["level"] for row in self.transfer))
        return FLIP if FLIP in levels or not levels else str(levels[-1])

    def matrix(self, level: str | None = None) -> tuple[list[str], list[str], np.ndarray[Any, np.dtype[np.float64]]]:
        """Sets, models and accuracy (sets, models) on files of the level, `shared_level` where none is named."""
        wanted = level or self.shared_level
        sets = [curve.name for curve in self.curves]
        cells = {(row["set"], row["model"]): row["accuracy"] for row in self.transfer if row["level"] == wanted}
        if not cells:
            levels = ", ".join(dict.fromkeys(row["level"] for row in self.transfer))
            raise InputError(f"no set has the level {wanted!r}: there are {levels}")
        table = np.array([[cells.get((name, model), np.nan) for model in self.models] for name in sets])
        return sets, list(self.models), table


def run_benchmark(
    benchmarks: Sequence[Benchmark | str | Path],
    models: Mapping[str, Victim],
    *,
    configs: Mapping[str, Mapping[str, Any]] | None = None,
    corruptions: Sequence[str] | bool = True,
    fresh: bool = False,
    seed: int = 0,
    progress: Progress = quiet,
) -> BenchmarkReport:
    """Asks every model about every file, unless its answers are there already. `configs` tell models apart that cannot be
    told by their weights; `corruptions` are filters to compare with, True for the benchmark's own, False for none."""
    if not benchmarks or not models:
        raise InputError("expected at least one benchmark and one model to run on it")
    loaded = [item if isinstance(item, Benchmark) else Benchmark.load(item) for item in benchmarks]
    _check_same_task(loaded)
    prints = {name: model_fingerprint(name, victim, (configs or {}).get(name)) for name, victim in models.items()}
    questions = [Questions(benchmark, corruptions_of(benchmark, corruptions), fresh) for benchmark in loaded]
    answers = {
        name: [asked.ask(name, victim, prints[name], progress) for asked in questions]
        for name, victim in models.items()
    }
    return _report(loaded, answers, prints, seed)


def _check_same_task(benchmarks: Sequence[Benchmark]) -> None:
    first = benchmarks[0]
    for other in benchmarks[1:]:
        if other.manifest.outputs != first.manifest.outputs:
            raise InputError(
                f"{first.folder} has {first.manifest.outputs} classes and {other.folder} has {other.manifest.outputs}: "
                f"run benchmarks of one task together"
            )
    names = [benchmark.name for benchmark in benchmarks]
    if len(set(names)) < len(names):
        raise InputError(f"two benchmark folders have the same name {names[0]!r}: rename one")


def _report(
    benchmarks: Sequence[Benchmark], answers: Mapping[str, list[Answers]], fingerprints: Mapping[str, str], seed: int
) -> BenchmarkReport:
    levels, distortions, areas, uniform = (list[Figure]() for _ in range(4))
    curves, by_curve = list[Curve](), {name: list[Answers]() for name in answers}
    for number, benchmark in enumerate(benchmarks):
        for curve in curves_of(benchmark):
            curves.append(curve)
            for name, by_benchmark in answers.items():
                of_model = by_benchmark[number]
                by_curve[name].append(of_model)
                levels += level_rows(curve, of_model, seed)
                distortions += distortion_rows(benchmark, curve, of_model)
                areas.append(_area(curve, of_model))
                uniform += _uniform_rows(benchmark, curve, of_model)
    return BenchmarkReport(
        models=tuple(answers),
        curves=tuple(curves),
        levels=tuple(levels),
        distortions=tuple(distortions),
        transfer=tuple(_transfer(levels, curves, fingerprints)),
        areas=tuple(areas),
        corruptions=tuple(uniform),
        standings=tuple(ranking(curves, by_curve, fingerprints, seed)),
        asked={name: sum(part.asked for part in by_benchmark) for name, by_benchmark in answers.items()},
        seed=seed,
    )


def _area(curve: Curve, answers: Answers) -> Figure:
    correct = curve.correct(answers)
    value = float(curve.area(correct, np.arange(len(correct))[None])[0]) if len(correct) else float("nan")
    return {"set": curve.name, "model": answers.model, "area": value}


def _transfer(levels: Sequence[Figure], curves: Sequence[Curve], fingerprints: Mapping[str, str]) -> list[Figure]:
    victims = {curve.name: curve.fingerprint for curve in curves}
    return [
        {"set": row["set"], "model": row["model"], "level": row["level"], "accuracy": row["accuracy_stored"],
         "samples": row["stored"], "own": fingerprints[row["model"]] == victims[row["set"]]}
        for row in levels
    ]  # fmt: skip


def _uniform_rows(benchmark: Benchmark, curve: Curve, answers: Answers) -> list[Figure]:
    """A set's accuracy on stored files, that of a corruption of the same samples at its mean L2, and the clean one."""
    figures = []
    for (victim, level, name), (uniform, uniform_l2, samples) in answers.corruptions.items():
        if victim == curve.victim:
            rows = benchmark.stored(victim, level)
            figures.append({
                "set": curve.name, "model": answers.model, "level": level, "corruption": name,
                "clean": _accuracy(answers, "", ORIGINAL, rows), "benchmark": _accuracy(answers, victim, level, rows),
                "uniform": uniform, "l2": float(np.mean([row["l2"] for row in rows])), "uniform_l2": uniform_l2,
                "samples": samples,
            })  # fmt: skip
    return figures


def _accuracy(answers: Answers, victim: str, level: str, rows: Sequence[Row]) -> float:
    """On the samples of these rows, as they are in a set."""
    return float(np.mean([answers.predicted[victim, level, row["place"]] == row["label"] for row in rows]))
