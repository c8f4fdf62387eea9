"""Tables of `benchmarks.transfer`: accuracies, the matrix, and ranks."""

from __future__ import annotations

from benchmarks.tables import section, table
from rlab.benchmarking import Benchmark, BenchmarkReport

Figures = dict[str, float]


def levels(report: BenchmarkReport, whole: Benchmark, against: str) -> tuple[str, Figures]:
    """Accuracy of every model at every level of the main set."""
    curve = next(graded for graded in report.sets if graded.name == f"{whole.name}/{against}")
    cells = {(row["model"], row["level"]): row for row in report.levels if row["set"] == curve.name}
    rows, figures = [], Figures()
    for model in report.models:
        each = [cells[model, level] for level in curve.points]
        rows.append((model, *(f"{row['accuracy_stored']:.1%}" for row in each)))
        figures |= {f"{model}_{row['level']}_accuracy": row["accuracy_stored"] for row in each[1:]}
    stored = ("stored", *(str(cells[report.models[0], level]["stored"]) for level in curve.points))
    l2 = ("L2, mean", *(mean_l2(whole, level) for level in curve.points))
    return section("Accuracy by severity", table(("model", *curve.points), [*rows, stored, l2])), figures


def mean_l2(whole: Benchmark, level: str) -> str:
    far = [row["l2"] for row in whole.rows if row["level"] == level and row["victim"] and row["reached"]]
    return f"{sum(far) / len(far):.2f}" if far else "0"


def matrix(report: BenchmarkReport) -> str:
    sets, models, values = report.matrix()
    rows = [(name, *("–" if v != v else f"{v:.1%}" for v in line)) for name, line in zip(sets, values, strict=True)]
    return section("Transfer of the flips: made against (rows), tested on (columns)", table(("", *models), rows))


def ranks_table(report: BenchmarkReport) -> str:
    made_against = {s.model: s.victim_of for s in report.standings}
    own = {row["model"]: row for row in report.areas if row["set"] in made_against[row["model"]]}
    rows = []
    for s in report.standings:
        area, median = (f"{e.value:.3f} [{e.low:.3f}, {e.high:.3f}]" for e in (s.area, s.flip_distance))
        flips, quartiles = own[s.model], f"{s.quartiles[0]:.2f}–{s.quartiles[1]:.2f}"
        held = f"{flips['never']} of {flips['samples']}"
        rows.append((s.model, area, median, quartiles, f"{flips['flip_distance']:.2f}", held, f"{s.best}–{s.worst}"))
    head = "model | area | median L2 to err | quartiles | median flip, own set | never flipped | rank in 95%"
    return table(head, rows)
