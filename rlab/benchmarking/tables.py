"""A benchmark and what models do on it as tables, the same on the terminal, on the page and in the card."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from rlab.benchmarking.chunk import COUNTS
from rlab.benchmarking.folder import Benchmark, Row
from rlab.benchmarking.ladder import FLIP
from rlab.present.table import Share, Table, Value, text
from rlab.stats import median_of

if TYPE_CHECKING:
    from rlab.benchmarking.run import BenchmarkReport

RULES = (
    "Accuracy counts every sample the set's victim had right; a sample stands on its strongest set up to the level. The area "
    "is the mean accuracy over the range of mean L2. Brackets: 95% bootstrap intervals, the same samples for all models. "
    "* a set was made against this model."
)


def queries_of(row: Row) -> int:
    """All that reached the victim for this sample and level."""
    return sum(row[name] for name in COUNTS)


def sets_table(benchmark: Benchmark) -> Table:
    """One row a set; queries are a sample's that was attacked, or taken on from the level before."""
    rows: list[list[str | float]] = []
    for victim in benchmark.victims:
        for level in benchmark.ladder.names:
            stored, asked = benchmark.stored(victim, level), benchmark.of(victim, level)
            l2, patches = (torch.tensor([row[name] for row in stored]).double() for name in ("l2", "l0_patches"))
            queries = torch.tensor([queries_of(row) for row in asked]).double()
            tried = queries[queries > (1 if level == FLIP else 0)]
            figures = (float(l2.mean()), median_of(l2), median_of(patches), float(tried.mean()))
            rows.append([victim, level, f"{len(stored)} of {len(asked)}", *figures])
    head = ["made against", "level", "samples", "mean L2", "median L2", "median patches", "queries a sample"]
    return Table(head, rows, f"Benchmark {benchmark.name}", words=2)


def report_tables(report: BenchmarkReport) -> list[Table]:
    """Ranking, accuracy by level, transfer, accuracy by distortion, and uniform corruptions where they were compared."""
    levels = [_level_table(report, curve.name) for curve in report.curves]
    compared = [_corruption_table(report)] if report.corruptions else []
    return [_ranking_table(report), *levels, transfer_table(report), _distortion_table(report), *compared]


def _ranking_table(report: BenchmarkReport) -> Table:
    """Best first; a star marks a model that a set was made against."""
    rows: list[list[Value]] = [
        [s.rank, s.model + (" *" if s.victim_of else ""), s.area, f"{s.best}–{s.worst}", report.asked[s.model]]
        for s in report.standings
    ]
    return Table(
        ["rank", "model", "area under accuracy-severity", "rank in 95%", "rows asked"], rows, "Ranking", words=2
    )


def _level_table(report: BenchmarkReport, name: str) -> Table:
    """Models down, severities across."""
    curve = next(curve for curve in report.curves if curve.name == name)
    points = (f"{point}\nL2 {l2:.3g}" for point, l2 in zip(curve.points, curve.severity, strict=True))
    areas = {row["model"]: row["area"] for row in report.areas if row["set"] == name}
    rows = []
    for model in report.models:
        cells = [row for row in report.levels if row["set"] == name and row["model"] == model]
        rows.append([model, *(Share(row["accuracy"]) for row in cells), areas[model]])
    return Table(["model", *points, "area"], rows, f"Accuracy on {name}, {len(curve.labels)} samples")


def transfer_table(report: BenchmarkReport, level: str | None = None) -> Table:
    """Made against (down), tested on (across): accuracy on the files of a level; brackets mark a model's own set."""
    sets, models, matrix = report.matrix(level)
    own = {(row["set"], row["model"]) for row in report.transfer if row["own"]}
    rows = []
    for name, accuracies in zip(sets, matrix.tolist(), strict=True):
        shares = {model: Share(accuracy) for model, accuracy in zip(models, accuracies, strict=True)}
        rows.append([name, *(f"({text(shares[m])})" if (name, m) in own else shares[m] for m in models)])
    title = f"Transfer at {level or report.shared_level}: made against ↓, tested on →, (own set)"
    return Table(["made against", *models], rows, title)


def _distortion_table(report: BenchmarkReport) -> Table:
    """By the filter on most patches, all levels together."""
    groups: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in report.distortions:
        groups[row["set"], row["distortion"]][row["model"]].append(row)
    rows = []
    for (name, distortion), by_model in groups.items():
        counts = {model: sum(row["samples"] for row in cells) for model, cells in by_model.items()}
        right = {model: sum(row["accuracy"] * row["samples"] for row in cells) for model, cells in by_model.items()}
        shares = (Share(right[model] / counts[model]) for model in report.models)
        rows.append([name, distortion, max(counts.values()), *shares])
    return Table(
        ["set", "distortion", "files", *report.models], rows, "Accuracy by main distortion, all levels", words=2
    )


def _corruption_table(report: BenchmarkReport) -> Table:
    """Each set beside the corruption that hurts most, at equal mean L2."""
    rows = []
    for row in worst_uniform(report):
        compared = not math.isnan(row["uniform"])
        verdict = "–" if not compared else "harder" if row["benchmark"] < row["uniform"] else "not harder"
        uniform = f"{text(Share(row['uniform']))} {row['corruption'] if compared else ''}".rstrip()
        rows.append([
            row["set"], row["level"], row["model"], row["l2"], Share(row["clean"]), Share(row["benchmark"]), uniform, verdict,
        ])  # fmt: skip
    head = ["set", "level", "model", "L2", "clean", "benchmark", "worst uniform", ""]
    return Table(head, rows, "Against uniform corruptions at equal mean L2: accuracy", words=3)


def worst_uniform(report: BenchmarkReport) -> list[dict[str, Any]]:
    """For every set, level and model the row of the corruption with the lowest accuracy; one that could not be made so
    strong does not count."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in report.corruptions:
        groups[row["set"], row["level"], row["model"]].append(row)
    return [min(rows, key=lambda row: (math.isnan(row["uniform"]), row["uniform"])) for rows in groups.values()]
