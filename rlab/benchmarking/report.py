"""The report of `rlab benchmark run`: how models do on benchmarks, by level, distortion and distance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rlab.benchmarking.config import FLIP
from rlab.benchmarking.scores import Grade, GradedSet, Standing, area_row, distance_rows, level_rows, ranking
from rlab.errors import OptionError
from rlab.present.chart import Chart, Curve
from rlab.present.page import Block, Charts, Facts, Page, Section, Text
from rlab.present.report import Metric, Report
from rlab.present.table import Cells, Share, Table, Value, text
from rlab.stats import Estimate

DEFAULT = Path("results", "report")  # below the benchmark's folder
RULES = (
    "A query is one input sent to a model. Accuracy counts every sample that the set's victim got right; at a level, a sample "
    "counts with its strongest file up to that level. A model's distance for a sample is the smallest L2 of its files that fool "
    "the model, at most the reach (see the set's card). The area is the mean distance divided by the reach, which is the area "
    "under accuracy by distance. The ranking uses each sample's smallest distance over all sets with the same data, palette and "
    "patches, on the samples they share. Brackets are 95% bootstrap intervals over samples and sets, with the same draws for "
    "all models. * a set was made against this model; for other models the distance is only an upper bound."
)


@dataclass(frozen=True)
class BenchmarkReport(Report):
    """How models perform on benchmarks, as rows of plain values. Sets are named BENCHMARK/VICTIM."""

    verb: ClassVar[str] = "benchmark run"
    models: tuple[str, ...]
    sets: tuple[GradedSet, ...]  # in the order given
    grades: tuple[Grade, ...]  # of every model on every set
    marks: Mapping[str, str]  # fingerprints of the models
    asked: Mapping[str, int]  # queries sent to each model in this run
    seed: int = 0

    def __repr__(self) -> str:
        return f"BenchmarkReport({', '.join(self.models)} on {len(self.sets)} sets)"

    def records(self) -> list[dict[str, Any]]:
        """One row per set, model and level: the accuracy on all samples and on stored files, and the mean L2."""
        return self.levels

    def metrics(self) -> Mapping[str, Metric]:
        """By model, and by set if there are several."""
        figures = dict[str, Metric]()
        for s in self.standings:
            figures |= {f"area of {s.model}": s.area, f"flip distance of {s.model}": s.flip_distance}
        several = len(self.sets) > 1
        for row in self.levels:
            where = f" on {row['set']}" if several else ""
            name = f"accuracy of {row['model']} at {row['level']}{where}"
            figures[name] = Share(Estimate(row["accuracy"], row["low"], row["high"]))
        return figures | {f"queries to {model}": count for model, count in self.asked.items()}

    @cached_property
    def _pairs(self) -> list[tuple[GradedSet, Grade]]:
        """Every set with the grade of each model."""
        known = {(grade.set, grade.model): grade for grade in self.grades}
        return [(graded, known[graded.name, model]) for graded in self.sets for model in self.models]

    @cached_property
    def levels(self) -> list[dict[str, Any]]:
        """By set, model and level: accuracy on all samples and on those with a file at the level, and the mean L2."""
        return [row for graded, grade in self._pairs for row in level_rows(graded, grade, self.seed)]

    @property
    def distortions(self) -> list[dict[str, Any]]:
        """By set, model, level and filter: accuracy on the files whose patches mostly hold this filter."""
        return [
            {"set": grade.set, "model": grade.model, "distortion": name, "level": level, "accuracy": right / count}
            | {"samples": count}
            for _, grade in self._pairs
            for name, level, count, right in grade.distortions
        ]

    @cached_property
    def areas(self) -> list[dict[str, Any]]:
        """By set and model: the area under accuracy by distance with its interval, and quartiles of the distances."""
        return [area_row(graded, grade, self.seed) for graded, grade in self._pairs]

    @property
    def curves(self) -> list[dict[str, Any]]:
        """By set, model and L2: accuracy on the axis shared by all sets with this data and palette."""
        return [row for graded, grade in self._pairs for row in distance_rows(graded, grade)]

    @property
    def transfer(self) -> list[dict[str, Any]]:
        """Accuracy of every model on the files of every set and level; own: the set was made against this model."""
        return [
            {
                "set": row["set"],
                "model": row["model"],
                "level": row["level"],
                "own": (row["set"], row["model"]) in self.own,
            }
            | {"accuracy": row["accuracy_stored"], "samples": row["stored"]}
            for row in self.levels
        ]

    @cached_property
    def standings(self) -> list[Standing]:
        """All models, best first."""
        by_model = {model: [grade for _, grade in self._pairs if grade.model == model] for model in self.models}
        return ranking(self.sets, by_model, self.marks, self.seed)

    @cached_property
    def own(self) -> frozenset[tuple[str, str]]:
        """Sets and the models that they were made against."""
        return frozenset((g.name, model) for g in self.sets for model in self.models if g.mark == self.marks[model])

    @property
    def shared_level(self) -> str:
        """The level at which sets are compared: the flip, or the severest level of a ladder of absolute distances."""
        levels = list(dict.fromkeys(row["level"] for row in self.levels))
        return FLIP if FLIP in levels or not levels else str(levels[-1])

    def matrix(self, level: str | None = None) -> tuple[list[str], list[str], np.ndarray[Any, np.dtype[np.float64]]]:
        """Sets, models and accuracy (sets, models) on the files of a level (default: `shared_level`)."""
        name, sets = level or self.shared_level, [graded.name for graded in self.sets]
        cells = {(row["set"], row["model"]): row["accuracy"] for row in self.transfer if row["level"] == name}
        if not cells:
            levels = ", ".join(dict.fromkeys(row["level"] for row in self.levels))
            raise OptionError(f"no set has the level {name!r}: the levels are {levels}")
        table = np.array([[cells.get((set_name, model), np.nan) for model in self.models] for set_name in sets])
        return sets, list(self.models), table

    def view(self, samples: int = 24, folder: Path | None = None) -> Page:
        title = f"Models on a benchmark{'' if folder is None else f': {folder.name}'}"
        queries = {model: f"{rows:,} queries in the last run" for model, rows in self.asked.items()}
        return Page(title, [Section("Benchmark", self.blocks()), Section("Queries", [Facts(queries)])])

    def blocks(self) -> list[Block]:
        """The curves and every table."""
        return [Charts(self.charts()), *self.tables(), Text(RULES, quiet=True)]

    def charts(self) -> list[Chart]:
        """Accuracy against distance: one chart per set with a curve per model."""
        charts = []
        for graded in self.sets:
            curves = []
            for model in self.models:
                rows = [row for row in self.curves if row["set"] == graded.name and row["model"] == model]
                l2, accuracy, *band = np.array([[r["l2"], r["accuracy"], r["low"], r["high"]] for r in rows]).T
                curves.append(Curve(model, l2, accuracy, (band[0], band[1])))
            charts.append(Chart(f"made against {graded.name}", curves, "L2", "accuracy", percent=True))
        return charts

    def tables(self) -> list[Table]:
        """Ranking, distances, accuracy by level, transfer, and accuracy by distortion."""
        ranked = [self._ranking(), self._distances()] if self.standings else []
        return [*ranked, *map(self._levels, self.sets), self._transfers(), self._distortions()]

    def _ranking(self) -> Table:
        """Best first; a star marks a model that a set was made against."""
        rows: list[list[Value]] = [
            [
                s.rank, s.model + (" *" if s.victim_of else ""), s.area, s.flip_distance, _between(*s.quartiles),
                f"{s.best}–{s.worst}", self.asked[s.model],
            ]
            for s in self.standings
        ]  # fmt: skip
        area = "area under accuracy-distance"
        head = ["rank", "model", area, "median L2 to error", "quartiles", "rank in 95%", "queries"]
        return Table(head, rows, "Ranking", words=2)

    def _distances(self) -> Table:
        """The distance to an error for each set and model; a model that never errs is at the reach."""
        rows: list[list[Value]] = [
            [
                row["set"], row["model"], Estimate(row["area"], row["low"], row["high"]), row["flip_distance"],
                _between(row["quartile_low"], row["quartile_high"]), f"{row['never']} of {row['samples']}", row["reach"],
            ]
            for row in self.areas
        ]  # fmt: skip
        head = ["set", "model", "area", "median L2 to error", "quartiles", "never wrong", "reach"]
        return Table(head, rows, "Distance to an error by set", words=2)

    def _levels(self, graded: GradedSet) -> Table:
        """Models in rows, severities in columns."""
        points = (f"{point}\nL2 {l2:.3g}" for point, l2 in zip(graded.points, graded.severity, strict=True))
        rows: list[Cells] = []
        for model in self.models:
            own = [row for row in self.levels if row["set"] == graded.name and row["model"] == model]
            rows.append([model, *(Share(row["accuracy"]) for row in own)])
        return Table(["model", *points], rows, f"Accuracy on {graded.name}, {graded.samples} samples")

    def _transfers(self) -> Table:
        """Accuracy on the files of a level: sets in rows, models in columns, brackets for a model's own set."""
        sets, models, matrix = self.matrix()
        rows: list[Cells] = []
        for name, accuracies in zip(sets, matrix.tolist(), strict=True):
            shares = {model: Share(accuracy) for model, accuracy in zip(models, accuracies, strict=True)}
            rows.append([name, *(f"({text(shares[m])})" if (name, m) in self.own else shares[m] for m in models)])
        title = f"Transfer at {self.shared_level}: made against ↓, tested on →, (own set)"
        return Table(["made against", *models], rows, title)

    def _distortions(self) -> Table:
        """Accuracy by the filter on most patches, over all levels."""
        rows: list[Cells] = []
        for graded in self.sets:
            grades = [grade for each, grade in self._pairs if each is graded]
            for name in dict.fromkeys(name for name, *_ in grades[0].distortions):
                counts = [[(count, right) for n, _, count, right in grade.distortions if n == name] for grade in grades]
                pooled = [[sum(each) for each in zip(*pairs, strict=True)] for pairs in counts]
                rows.append([graded.name, name, pooled[0][0], *(Share(right / count) for count, right in pooled)])
        head = ["set", "distortion", "files", *self.models]
        return Table(head, rows, "Accuracy by main distortion, all levels", words=2)


def _between(low: float, high: float) -> str:
    return f"{text(low)}–{text(high)}"
