"""The report of `rlab benchmark run`, saved as CSV, JSON and a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure as Drawing

from rlab.benchmarking.config import FLIP
from rlab.benchmarking.scores import Standing
from rlab.benchmarking.tables import draw_report, report_blocks
from rlab.errors import OptionError
from rlab.present.page import Facts, Page, Section
from rlab.present.result import PathLike, Result
from rlab.results.plots.save import save_figure
from rlab.stats import Estimate
from rlab.storage.files import read_result, write_csv, write_json
from rlab.storage.resume import Resume, open_run

DEFAULT = Path("results", "report")  # below the benchmark's folder
REPORT = "report.json"
TABLES = {  # file name: the field of a report that it holds
    "accuracy": "levels", "distortions": "distortions", "transfer": "transfer", "areas": "areas", "curves": "curves",
}  # fmt: skip
Figure = dict[str, Any]
Figures = tuple[Figure, ...]


@dataclass(frozen=True)
class GradedSet:
    """One set and the severities at which models were graded."""

    name: str  # BENCHMARK/VICTIM
    points: tuple[str, ...]  # original, then levels
    severity: tuple[float, ...]  # mean L2 of each point
    samples: int


@dataclass(frozen=True)
class BenchmarkReport(Result):
    """How models perform on benchmarks, as rows of plain values. Sets are named BENCHMARK/VICTIM."""

    models: tuple[str, ...]
    levels: Figures  # set, model, level: accuracy on all samples and on stored files, mean L2
    distortions: Figures  # set, model, main filter, level: accuracy
    transfer: Figures  # set, model, level: accuracy on stored files; own: the set was made against this model
    areas: Figures  # set, model: area under accuracy by distance with its interval, quartiles of the distances
    curves: Figures  # set, model, L2: accuracy on the axis shared by all sets with this data and palette
    standings: tuple[Standing, ...]
    asked: Mapping[str, int]  # queries sent to each model in this run
    seed: int = 0

    def __repr__(self) -> str:
        return f"BenchmarkReport({', '.join(self.models)} on {len(self.sets)} sets)"

    def plot(self) -> Drawing:
        """Draw accuracy against distance for every set."""
        return draw_report(self)

    def records(self) -> list[dict[str, Any]]:
        """One row per set, model and level: the accuracy on all samples and on stored files, and the mean L2."""
        return [dict(row) for row in self.levels]

    def make_page(self, title: str = "Models on a benchmark") -> Page:
        queries = {model: f"{rows:,} queries in the last run" for model, rows in self.asked.items()}
        return Page(title, [Section("Benchmark", report_blocks(self)), Section("Queries", [Facts(queries)])])

    def save(self, folder: PathLike) -> Path:
        """Write CSV files, report.json and report.png, replacing an earlier report."""
        return save_report(self, Path(folder))

    @property
    def sets(self) -> list[GradedSet]:
        """The sets in the order given; every model has the same points."""
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
        """The level at which sets are compared: the flip, or the severest level of a ladder of absolute distances."""
        levels = list(dict.fromkeys(row["level"] for row in self.transfer))
        return FLIP if FLIP in levels or not levels else str(levels[-1])

    def matrix(self, level: str | None = None) -> tuple[list[str], list[str], np.ndarray[Any, np.dtype[np.float64]]]:
        """Sets, models and accuracy (sets, models) on the files of a level (default: `shared_level`)."""
        name = level or self.shared_level
        sets = [graded.name for graded in self.sets]
        cells = {(row["set"], row["model"]): row["accuracy"] for row in self.transfer if row["level"] == name}
        if not cells:
            levels = ", ".join(dict.fromkeys(row["level"] for row in self.transfer))
            raise OptionError(f"no set has the level {name!r}: the levels are {levels}")
        table = np.array([[cells.get((set_name, model), np.nan) for model in self.models] for set_name in sets])
        return sets, list(self.models), table


def save_report(report: BenchmarkReport, folder: str | Path) -> Path:
    """Write CSV files, report.json and report.png into a folder, replacing an earlier report."""
    folder = Path(folder)
    ranking = [
        {"rank": s.rank, "model": s.model, "area": s.area.value, "low": s.area.low, "high": s.area.high,
         "flip_distance": s.flip_distance.value, "flip_distance_low": s.flip_distance.low,
         "flip_distance_high": s.flip_distance.high, "quartile_low": s.quartiles[0], "quartile_high": s.quartiles[1],
         "best": s.best, "worst": s.worst, "victim_of": " ".join(s.victim_of)}
        for s in report.standings
    ]  # fmt: skip
    tables: dict[str, Sequence[Mapping[str, Any]]] = {name: getattr(report, field) for name, field in TABLES.items()}
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
    """Open a folder for reports; a new report replaces the old one, and folders of other commands are refused."""
    return open_run(folder, {"command": "benchmark run"})


def read_report(folder: Path) -> BenchmarkReport:
    """Read the report that `save_report` wrote."""
    return read_result(folder / REPORT, _report)


def _report(plain: Mapping[str, Any]) -> BenchmarkReport:
    tables = {field: tuple(map(_with_nan, plain[name])) for name, field in TABLES.items()}
    standings = tuple(_standing(_with_nan(row)) for row in plain["ranking"])
    return BenchmarkReport(
        tuple(plain["models"]), **tables, standings=standings, asked=plain["asked"], seed=plain["seed"]
    )


def _with_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: math.nan if value is None else value for key, value in row.items()}


def _standing(row: Mapping[str, Any]) -> Standing:
    area = Estimate(row["area"], row["low"], row["high"])
    distance = Estimate(*(row[f"flip_distance{end}"] for end in ("", "_low", "_high")))
    quartiles, places = (row["quartile_low"], row["quartile_high"]), (row["rank"], row["best"], row["worst"])
    return Standing(row["model"], area, distance, quartiles, *places, tuple(row["victim_of"].split()))
