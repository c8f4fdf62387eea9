"""Grading models on benchmarks: one call, every figure, nothing asked twice. A report is saved as CSV, JSON and a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlab.benchmarking.answers import ANSWERS, Answers, Questions, corruptions_of
from rlab.benchmarking.config import FLIP, ORIGINAL
from rlab.benchmarking.folder import Benchmark, Row
from rlab.benchmarking.scores import (
    Curve,
    Standing,
    area_row,
    curves_of,
    distance_rows,
    distortion_rows,
    level_rows,
    ranking,
)
from rlab.errors import InputError
from rlab.filters.palette import Spec
from rlab.progress import Progress, quiet
from rlab.results.plots.save import save_figure
from rlab.runs.fingerprint import model_fingerprint
from rlab.stats import Estimate
from rlab.storage.files import read_json, write_csv, write_json
from rlab.storage.lock import hold
from rlab.storage.resume import Resume, open_run
from rlab.victims.base import Victim

REPORT, DEFAULT = "report.json", Path("results", "report")  # DEFAULT: below the benchmark's folder
_TABLES = {  # names of files, and the fields of a report they hold
    "accuracy": "levels", "distortions": "distortions", "transfer": "transfer", "areas": "areas",
    "corruptions": "corruptions", "curves": "curves",
}  # fmt: skip
Figure = dict[str, Any]
Figures = tuple[Figure, ...]


@dataclass(frozen=True)
class GradedSet:
    """One set and the severities that models were graded at."""

    name: str  # BENCHMARK/VICTIM
    points: tuple[str, ...]  # original, then levels
    severity: tuple[float, ...]  # mean L2 of each point
    samples: int


@dataclass(frozen=True)
class BenchmarkReport:
    """What models do on benchmarks, as rows of plain values. Sets are named BENCHMARK/VICTIM."""

    models: tuple[str, ...]
    levels: Figures  # set, model, level: accuracy over all samples and over stored files, mean L2
    distortions: Figures  # set, model, main filter, level: accuracy
    transfer: Figures  # set, model, level: accuracy on the stored files; own: made against this very model
    areas: (
        Figures  # set, model: area under accuracy by distance, with its interval; median and quartiles of the distances
    )
    corruptions: Figures  # set, model, level, corruption: accuracy at equal mean L2 beside the set's own
    curves: Figures  # set, model, L2: accuracy on the axis that all sets of this data and palette share
    standings: tuple[Standing, ...]
    asked: Mapping[str, int]  # rows that reached each model this time
    seed: int = 0

    def __repr__(self) -> str:
        return f"BenchmarkReport({', '.join(self.models)} on {len(self.sets)} sets)"

    @property
    def sets(self) -> list[GradedSet]:
        """In the order they were given; every model has the same points."""
        points: dict[str, list[Figure]] = {}
        for row in self.levels:
            if row["model"] == self.models[0]:
                points.setdefault(row["set"], []).append(row)
        return [
            GradedSet(name, tuple(row["level"] for row in rows), tuple(row["l2"] for row in rows), rows[0]["samples"])
            for name, rows in points.items()
        ]

    @property
    def shared_level(self) -> str:
        """Where sets are compared: the flip, or the severest level where the ladder is of absolute distances."""
        levels = list(dict.fromkeys(row["level"] for row in self.transfer))
        return FLIP if FLIP in levels or not levels else str(levels[-1])

    def matrix(self, level: str | None = None) -> tuple[list[str], list[str], np.ndarray[Any, np.dtype[np.float64]]]:
        """Sets, models and accuracy (sets, models) on files of the level, `shared_level` where none is named."""
        wanted = level or self.shared_level
        sets = [each.name for each in self.sets]
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
    corruptions: Sequence[Spec] | bool = True,
    trust: bool = False,
    fresh: bool = False,
    seed: int = 0,
    progress: Progress = quiet,
) -> BenchmarkReport:
    """Asks every model about every file, unless its answers are there already. `configs` tell models apart that cannot be
    told by their weights; `corruptions` are filters to compare with, True for the benchmark's own, False for none. Of its own
    those run that are built in; `trust` in the folders runs any function they name."""
    if not benchmarks or not models:
        raise InputError("expected at least one benchmark and one model to run on it")
    loaded = [item if isinstance(item, Benchmark) else Benchmark.load(item) for item in benchmarks]
    first, names = loaded[0], [benchmark.name for benchmark in loaded]
    for other in loaded[1:]:
        if 0 not in (both := {other.manifest.outputs, first.manifest.outputs}) and len(both) > 1:
            counts = f"has {first.manifest.outputs} classes and {other.folder} has {other.manifest.outputs}"
            raise InputError(f"{first.folder} {counts}: run benchmarks of one task together")
    if len(set(names)) < len(names):
        raise InputError(f"two benchmark folders have the same name {names[0]!r}: rename one")
    prints = {name: model_fingerprint(name, victim, (configs or {}).get(name)) for name, victim in models.items()}
    with ExitStack() as stack:
        questions = []
        for benchmark in loaded:
            stack.enter_context(hold(benchmark.folder, "benchmark run"))
            resume = stack.enter_context(open_run(benchmark.folder / ANSWERS, {"command": "benchmark run"}))
            questions.append(Questions(benchmark, resume, corruptions_of(benchmark, corruptions, trust), fresh))
        answers = {
            name: [asked.ask(name, victim, prints[name], progress) for asked in questions]
            for name, victim in models.items()
        }
    return _report(loaded, answers, prints, seed)


def _report(
    benchmarks: Sequence[Benchmark], answers: Mapping[str, list[Answers]], fingerprints: Mapping[str, str], seed: int
) -> BenchmarkReport:
    curves, rows = list[Curve](), {name: list[Figure]() for name in _TABLES.values()}
    by_curve = {model: list[Answers]() for model in answers}
    for number, benchmark in enumerate(benchmarks):
        for curve in curves_of(benchmark):
            curves.append(curve)
            for model, by_benchmark in answers.items():
                of_model = by_benchmark[number]
                by_curve[model].append(of_model)
                levels = level_rows(curve, of_model, seed)
                rows["levels"] += levels
                rows["transfer"] += _transfer(levels, curve.against(fingerprints[model]))
                rows["distortions"] += distortion_rows(benchmark, curve, of_model)
                rows["areas"].append(area_row(curve, of_model, seed))
                rows["curves"] += distance_rows(curve, of_model)
                rows["corruptions"] += _uniform_rows(benchmark, curve, of_model)
    asked = {model: sum(part.asked for part in by_benchmark) for model, by_benchmark in answers.items()}
    standings = tuple(ranking(curves, by_curve, fingerprints, seed))
    tables = {name: tuple(figures) for name, figures in rows.items()}
    return BenchmarkReport(tuple(answers), **tables, standings=standings, asked=asked, seed=seed)


def _transfer(levels: Sequence[Figure], own: bool) -> list[Figure]:
    """What the levels' rows say of stored files; `own`: the set was made against this very model."""
    shared = ("set", "model", "level")
    return [
        {
            **{name: row[name] for name in shared},
            "accuracy": row["accuracy_stored"],
            "samples": row["stored"],
            "own": own,
        }
        for row in levels
    ]


def _uniform_rows(benchmark: Benchmark, curve: Curve, answers: Answers) -> list[Figure]:
    """A set's accuracy on stored files, that of a corruption of the same samples at its mean L2, and the clean one."""
    figures = []
    for uniform in (row for row in answers.corruptions if row["victim"] == curve.victim):
        level = uniform["level"]
        rows = benchmark.stored(curve.victim, level)
        figures.append({
            "set": curve.name, "model": answers.model, "level": level, "corruption": uniform["corruption"],
            "clean": _accuracy(answers, "", ORIGINAL, rows), "benchmark": _accuracy(answers, curve.victim, level, rows),
            "uniform": uniform["accuracy"], "l2": float(np.mean([row["l2"] for row in rows])),
            "uniform_l2": uniform["l2"], "samples": uniform["samples"],
        })  # fmt: skip
    return figures


def _accuracy(answers: Answers, victim: str, level: str, rows: Sequence[Row]) -> float:
    """On the samples of these rows, as they are in a set."""
    return float(np.mean([answers.predicted[victim, level, row["place"]] == row["label"] for row in rows]))


def save_report(report: BenchmarkReport, folder: str | Path) -> Path:
    """CSV files, report.json and report.png in a folder; files of an earlier report are replaced."""
    from rlab.benchmarking.picture import draw_report

    folder = Path(folder)
    ranking = [
        {"rank": s.rank, "model": s.model, "area": s.area.value, "low": s.area.low, "high": s.area.high,
         "flip_distance": s.flip_distance.value, "flip_distance_low": s.flip_distance.low,
         "flip_distance_high": s.flip_distance.high, "quartile_low": s.quartiles[0], "quartile_high": s.quartiles[1],
         "best": s.best, "worst": s.worst, "victim_of": " ".join(s.victim_of)}
        for s in report.standings
    ]  # fmt: skip
    tables: dict[str, Sequence[Mapping[str, Any]]] = {name: getattr(report, field) for name, field in _TABLES.items()}
    tables |= {"ranking": ranking}
    picture = draw_report(report)
    with open_report(folder) as resume:
        resume.create()
        for name, rows in tables.items():
            write_csv(folder / f"{name}.csv", rows)
        write_json(folder / REPORT, {"models": report.models, "asked": report.asked, "seed": report.seed, **tables})
        save_figure(picture, folder / "report.png")
    return folder


def open_report(folder: Path) -> AbstractContextManager[Resume]:
    """A folder for reports, a later one in place of an earlier; folders of other commands are refused."""
    return open_run(folder, {"command": "benchmark run"})


def read_report(folder: Path) -> BenchmarkReport:
    """The report that `save_report` wrote."""
    plain = read_json(folder / REPORT)
    try:
        facts: dict[str, Any] = {field: tuple(map(_with_nan, plain[name])) for name, field in _TABLES.items()}
        facts |= {"standings": tuple(map(_standing, map(_with_nan, plain["ranking"])))}
        facts |= {name: plain[name] for name in ("asked", "seed")}
        return BenchmarkReport(tuple(plain["models"]), **facts)
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder / REPORT} was not written by rlab: {type(error).__name__} {error}") from error


def _with_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: math.nan if value is None else value for key, value in row.items()}


def _standing(row: Mapping[str, Any]) -> Standing:
    area = Estimate(row["area"], row["low"], row["high"])
    distance = Estimate(*(row[f"flip_distance{end}"] for end in ("", "_low", "_high")))
    quartiles, places = (row["quartile_low"], row["quartile_high"]), (row["rank"], row["best"], row["worst"])
    return Standing(row["model"], area, distance, quartiles, *places, tuple(row["victim_of"].split()))
