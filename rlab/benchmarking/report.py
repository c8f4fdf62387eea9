"""The report of `rlab benchmark run`: how models do on benchmarks, by level, distortion and distance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from rlab.benchmarking.config import FLIP
from rlab.benchmarking.scores import GradedSet, Record, Standing, ranking
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
    """How models perform on benchmarks. Sets are named BENCHMARK/VICTIM."""

    verb: ClassVar[str] = "benchmark run"
    sets: tuple[GradedSet, ...]  # in the order given
    asked: Mapping[str, int]  # queries sent to each model in this run
    seed: int = 0

    def __repr__(self) -> str:
        return f"BenchmarkReport({', '.join(self.models)} on {len(self.sets)} sets)"

    def records(self) -> list[Record]:
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

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(self.asked)

    @cached_property
    def levels(self) -> list[Record]:
        """By set, model and level: accuracy on all samples and on those with a file at the level, and the mean L2."""
        return [row for s, model in self._pairs for row in s.by_level(model, self.seed)]

    @cached_property
    def distortions(self) -> list[Record]:
        """By set, model, level and filter: accuracy on the files whose patches mostly hold this filter."""
        return [row for graded, model in self._pairs for row in graded.by_distortion(model)]

    @cached_property
    def areas(self) -> list[Record]:
        """By set and model: the area under accuracy by distance with its interval, and quartiles of the distances."""
        return [graded.area(model, self.seed) for graded, model in self._pairs]

    @cached_property
    def standings(self) -> list[Standing]:
        """All models, best first."""
        return ranking(self.sets, self.models, self.seed)

    @property
    def _pairs(self) -> list[tuple[GradedSet, str]]:
        return [(graded, model) for graded in self.sets for model in self.models]

    @property
    def shared_level(self) -> str:
        """The level at which sets are compared: the flip, or the severest level of a ladder of absolute distances."""
        levels = list(dict.fromkeys(row["level"] for row in self.levels))
        return FLIP if FLIP in levels or not levels else str(levels[-1])

    def matrix(self, level: str | None = None) -> tuple[list[str], list[str], np.ndarray[Any, np.dtype[np.float64]]]:
        """Sets, models and accuracy (sets, models) on the files of a level (default: `shared_level`)."""
        name, sets = level or self.shared_level, [graded.name for graded in self.sets]
        cells = {(row["set"], row["model"]): row["accuracy_stored"] for row in self.levels if row["level"] == name}
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
            drawn = ((model, graded.curve(model)) for model in self.models)
            curves = [Curve(model, l2, accuracy, (low, high)) for model, (l2, accuracy, low, high) in drawn]
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
        rows: list[Cells] = [
            [model, *(Share(row["accuracy"]) for row in graded.by_level(model, self.seed))] for model in self.models
        ]
        return Table(["model", *points], rows, f"Accuracy on {graded.name}, {len(graded.samples)} samples")

    def _transfers(self) -> Table:
        """Accuracy on the files of a level: sets in rows, models in columns, brackets for a model's own set."""
        rows: list[Cells] = []
        for graded, accuracies in zip(self.sets, self.matrix()[2].tolist(), strict=True):
            shares = zip(self.models, map(Share, accuracies), strict=True)
            rows.append(
                [graded.name, *(f"({text(share)})" if model in graded.own else share for model, share in shares)]
            )
        title = f"Transfer at {self.shared_level}: made against ↓, tested on →, (own set)"
        return Table(["made against", *self.models], rows, title)

    def _distortions(self) -> Table:
        """Accuracy by the filter on most patches, over all levels."""
        counts = defaultdict[tuple[str, str], dict[str, tuple[int, float]]](dict)
        for row in self.distortions:
            by_model = counts[row["set"], row["distortion"]]
            files, right = by_model.get(row["model"], (0, 0.0))
            by_model[row["model"]] = files + row["samples"], right + row["accuracy"] * row["samples"]
        rows: list[Cells] = [
            [name, kind, each[self.models[0]][0], *(Share(right / files) for files, right in each.values())]
            for (name, kind), each in counts.items()
        ]
        head = ["set", "distortion", "files", *self.models]
        return Table(head, rows, "Accuracy by main distortion, all levels", words=2)


def _between(low: float, high: float) -> str:
    return f"{text(low)}–{text(high)}"
