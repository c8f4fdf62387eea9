"""Grading models on benchmarks: one call, every figure, nothing asked twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlab.benchmarking.answers import Answers, Uniform, ask_model
from rlab.benchmarking.corruptions import Corruption, corruptions_of
from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.marks import model_mark
from rlab.benchmarking.scores import Curve, Standing, curves_of, distortion_rows, level_rows, ranking
from rlab.errors import InputError
from rlab.progress import Progress, quiet
from rlab.victims.base import Victim

Figures = tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Report:
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
        known = list(dict.fromkeys(row["level"] for row in self.transfer))
        return "flip" if "flip" in known or not known else str(known[-1])

    def matrix(self, level: str | None = None) -> tuple[list[str], list[str], np.ndarray[Any, np.dtype[np.float64]]]:
        """Sets, models and accuracy (sets, models) on files of the level, `shared_level` where none is named."""
        wanted = level or self.shared_level
        sets = [curve.name for curve in self.curves]
        cells = {(row["set"], row["model"]): row["accuracy"] for row in self.transfer if row["level"] == wanted}
        if not cells:
            known = ", ".join(dict.fromkeys(row["level"] for row in self.transfer))
            raise InputError(f"no set has the level {wanted!r}: there are {known}")
        table = np.array([[cells.get((one, model), np.nan) for model in self.models] for one in sets])
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
) -> Report:
    """Asks every model about every file, unless its answers are there already. `configs` tell models apart that cannot be
    told by their weights; `corruptions` are filters to compare with, True for the benchmark's own, False for none."""
    if not benchmarks or not models:
        raise InputError("expected at least one benchmark and one model to run on it")
    whole = [one if isinstance(one, Benchmark) else Benchmark.load(one) for one in benchmarks]
    _same_task(whole)
    marks = {name: model_mark(name, victim, (configs or {}).get(name)) for name, victim in models.items()}
    uniform = [(one, Uniform(one, wanted_corruptions(one, corruptions))) for one in whole]
    said = {
        name: [ask_model(one, name, victim, marks[name], more, fresh, progress) for one, more in uniform]
        for name, victim in models.items()
    }
    return _report(whole, said, marks, seed)


def wanted_corruptions(benchmark: Benchmark, said: Sequence[str] | bool) -> tuple[Corruption, ...]:
    """True: the benchmark's own filters; names: those; False: none."""
    if said is False:
        return ()
    return tuple(corruptions_of(benchmark, None if said is True else said))


def _same_task(whole: Sequence[Benchmark]) -> None:
    first = whole[0]
    for one in whole[1:]:
        if one.manifest.outputs != first.manifest.outputs:
            raise InputError(
                f"{first.folder} has {first.manifest.outputs} classes and {one.folder} has {one.manifest.outputs}: "
                f"run benchmarks of one task together"
            )
    names = [one.name for one in whole]
    if len(set(names)) < len(names):
        raise InputError(f"two benchmark folders have the same name {names[0]!r}: rename one")


def _report(
    whole: Sequence[Benchmark], said: Mapping[str, list[Answers]], marks: Mapping[str, str], seed: int
) -> Report:
    pairs = [(number, one, curve) for number, one in enumerate(whole) for curve in curves_of(one)]
    levels, distortions, areas, uniform = [], [], [], []
    for number, one, curve in pairs:
        for _, each in said.items():
            answers = each[number]
            levels += level_rows(one, curve, answers, seed)
            distortions += distortion_rows(one, curve, answers)
            areas.append(_area(curve, answers))
            uniform += _uniform_rows(one, curve, answers)
    curves = tuple(curve for *_, curve in pairs)
    by_curve = {name: [each[number] for number, *_ in pairs] for name, each in said.items()}
    return Report(
        models=tuple(said),
        curves=curves,
        levels=tuple(levels),
        distortions=tuple(distortions),
        transfer=tuple(_transfer(levels, curves, marks)),
        areas=tuple(areas),
        corruptions=tuple(uniform),
        standings=tuple(ranking(curves, by_curve, marks, seed)),
        asked={name: sum(one.asked for one in each) for name, each in said.items()},
        seed=seed,
    )


def _area(curve: Curve, answers: Answers) -> dict[str, Any]:
    right = curve.correct(answers)
    value = float(curve.area(right, np.arange(len(right))[None])[0]) if len(right) else float("nan")
    return {"set": curve.name, "model": answers.model, "area": value}


def _transfer(
    levels: Sequence[Mapping[str, Any]], curves: Sequence[Curve], marks: Mapping[str, str]
) -> list[dict[str, Any]]:
    mark = {curve.name: curve.mark for curve in curves}
    return [
        {"set": row["set"], "model": row["model"], "level": row["level"], "accuracy": row["accuracy_stored"],
         "samples": row["stored"], "own": marks[row["model"]] == mark[row["set"]]}
        for row in levels
    ]  # fmt: skip


def _uniform_rows(benchmark: Benchmark, curve: Curve, answers: Answers) -> list[dict[str, Any]]:
    """A set's accuracy on stored files, that of a corruption of the same samples at its mean L2, and the clean one."""
    made = []
    for (victim, level, name), (accuracy, l2, samples) in answers.corruptions.items():
        if victim != curve.victim:
            continue
        rows = [row for row in benchmark.of(victim, level) if row["reached"]]
        ours = np.mean([answers.predicted[victim, level, row["place"]] == row["label"] for row in rows])
        clean = np.mean([answers.predicted["", "original", row["place"]] == row["label"] for row in rows])
        mean = float(np.mean([row["l2"] for row in rows]))
        figures = {"clean": float(clean), "benchmark": float(ours), "uniform": accuracy, "l2": mean, "uniform_l2": l2}
        made.append(
            {
                "set": curve.name,
                "model": answers.model,
                "level": level,
                "corruption": name,
                **figures,
                "samples": samples,
            }
        )
    return made
