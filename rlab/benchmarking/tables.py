"""Tables, pages and figures of a benchmark folder, and of the report on it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
import torch
from matplotlib.figure import Figure

from rlab.benchmarking.chunk import COUNTS
from rlab.benchmarking.config import FLIP
from rlab.present.chart import Chart, Curve
from rlab.present.figures import draw_panels
from rlab.present.inline import figure_address
from rlab.present.notebook import thumbnails
from rlab.present.page import Beside, Block, Code, Facts, Gallery, Page, Picture, Section, Text
from rlab.present.style import STYLE, WIDE, flow, plain
from rlab.present.table import Share, Table, Value, number, text
from rlab.results.tables import QUERIES
from rlab.stats import Estimate, median_of
from rlab.storage.names import CONFIG

if TYPE_CHECKING:
    from rlab.benchmarking.folder import Benchmark, Row
    from rlab.benchmarking.report import BenchmarkReport, GradedSet

SIDE = 224  # pixels along a picture
_ACROSS = 3  # panels per row
RULES = (
    "A query is one input sent to a model. Accuracy counts every sample that the set's victim got right; at a level, a sample "
    "counts with its strongest file up to that level. A model's distance for a sample is the smallest L2 of its files that fool "
    "the model, at most the reach (see the set's card). The area is the mean distance divided by the reach, which is the area "
    "under accuracy by distance. The ranking uses each sample's smallest distance over all sets with the same data, palette and "
    "patches, on the samples they share. Brackets are 95% bootstrap intervals over samples and sets, with the same draws for "
    "all models. * a set was made against this model; for other models the distance is only an upper bound."
)


def queries_of(row: Row, phases: Sequence[str] = COUNTS) -> int:
    """The queries for this sample and level: all, or those of some phases."""
    return sum(row[name] for name in phases)


def sets_table(benchmark: Benchmark) -> Table:
    """One row per set; queries are those per attacked sample, without the final one that verifies the stored file."""
    rows: list[list[str | float]] = []
    for victim in benchmark.victims:
        for level in benchmark.levels:
            stored, every = benchmark.stored(victim, level), benchmark.of(victim, level)
            l2, patches = (torch.tensor([row[name] for row in stored]).double() for name in ("l2", "l0_patches"))
            queries = torch.tensor([queries_of(row, COUNTS[:2]) for row in every]).double()
            tried = queries[queries > (1 if level == FLIP else 0)]
            figures = (float(l2.mean()), median_of(l2), median_of(patches), float(tried.mean()))
            rows.append([victim, level, f"{len(stored)} of {len(every)}", *figures])
    head = ["made against", "level", "samples", "mean L2", "median L2", "median patches", "mean queries"]
    return Table(head, rows, f"Benchmark {benchmark.name}", words=2)


def report_tables(report: BenchmarkReport) -> list[Table]:
    """Ranking, distances, accuracy by level, transfer, and accuracy by distortion."""
    levels = [_level_table(report, graded) for graded in report.sets]
    ranked = [_ranking_table(report), _distance_table(report)] if report.standings else []
    return [*ranked, *levels, _transfer_table(report), _distortion_table(report)]


def _ranking_table(report: BenchmarkReport) -> Table:
    """Best first; a star marks a model that a set was made against."""
    rows: list[list[Value]] = [
        [
            s.rank, s.model + (" *" if s.victim_of else ""), s.area, s.flip_distance, _between(*s.quartiles),
            f"{s.best}–{s.worst}", report.asked[s.model],
        ]
        for s in report.standings
    ]  # fmt: skip
    area = "area under accuracy-distance"
    head = ["rank", "model", area, "median L2 to error", "quartiles", "rank in 95%", "queries"]
    return Table(head, rows, "Ranking", words=2)


def _between(low: float, high: float) -> str:
    return f"{text(low)}–{text(high)}"


def _distance_table(report: BenchmarkReport) -> Table:
    """The distance to an error for each set and model; a model that never errs is at the reach."""
    rows: list[list[Value]] = [
        [
            row["set"], row["model"], Estimate(row["area"], row["low"], row["high"]), row["flip_distance"],
            _between(row["quartile_low"], row["quartile_high"]), f"{row['never']} of {row['samples']}", row["reach"],
        ]
        for row in report.areas
    ]  # fmt: skip
    head = ["set", "model", "area", "median L2 to error", "quartiles", "never wrong", "reach"]
    return Table(head, rows, "Distance to an error by set", words=2)


def _level_table(report: BenchmarkReport, graded: GradedSet) -> Table:
    """Models in rows, severities in columns."""
    points = (f"{point}\nL2 {l2:.3g}" for point, l2 in zip(graded.points, graded.severity, strict=True))
    rows = list[list[Value | Share]]()
    for model in report.models:
        cells = [row for row in report.levels if row["set"] == graded.name and row["model"] == model]
        rows.append([model, *(Share(row["accuracy"]) for row in cells)])
    return Table(["model", *points], rows, f"Accuracy on {graded.name}, {graded.samples} samples")


def _transfer_table(report: BenchmarkReport) -> Table:
    """Accuracy on the files of a level: sets in rows, models in columns, brackets for a model's own set."""
    sets, models, matrix = report.matrix()
    own = {(row["set"], row["model"]) for row in report.transfer if row["own"]}
    rows = []
    for name, accuracies in zip(sets, matrix.tolist(), strict=True):
        shares = {model: Share(accuracy) for model, accuracy in zip(models, accuracies, strict=True)}
        rows.append([name, *(f"({text(shares[m])})" if (name, m) in own else shares[m] for m in models)])
    title = f"Transfer at {report.shared_level}: made against ↓, tested on →, (own set)"
    return Table(["made against", *models], rows, title)


def _distortion_table(report: BenchmarkReport) -> Table:
    """Accuracy by the filter on most patches, over all levels."""
    groups: dict[tuple[str, str], dict[str, list[Mapping[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in report.distortions:
        groups[row["set"], row["distortion"]][row["model"]].append(row)
    rows = []
    for (name, distortion), by_model in groups.items():
        counts = {model: sum(row["samples"] for row in cells) for model, cells in by_model.items()}
        right = {model: sum(row["accuracy"] * row["samples"] for row in cells) for model, cells in by_model.items()}
        shares = (Share(right[model] / counts[model]) for model in report.models)
        rows.append([name, distortion, max(counts.values()), *shares])
    head = ["set", "distortion", "files", *report.models]
    return Table(head, rows, "Accuracy by main distortion, all levels", words=2)


def benchmark_section(
    benchmark: Benchmark, report: BenchmarkReport | None, verified: Mapping[str, Any] | None = None
) -> Section:
    """The benchmark on a page; `verified` is a `Verification` as plain values."""
    blocks: list[Block] = [sets_table(benchmark), Text(QUERIES, quiet=True)]
    if verified is not None:
        wrong = "; ".join(map(str, verified["mismatches"][:5]))
        blocks.append(Text(f"{verified['files']} files checked: {wrong or 'every hash, distance and flip holds.'}"))
    return Section("Benchmark", blocks if report is None else [*blocks, *report_blocks(report)])


def report_blocks(report: BenchmarkReport) -> list[Block]:
    """The picture and every table of a report."""
    about = "Accuracy against distance"
    picture = Gallery([Picture(figure_address(draw_report(report), 90), about, drawn=True)])
    return [picture, *report_tables(report), Text(RULES, quiet=True)]


def benchmark_page(benchmark: Benchmark, report: BenchmarkReport | None, samples: int) -> Page:
    """Sets, the first `samples` from mild to severe, and how the folder was made."""
    m, folder = benchmark.manifest, benchmark.folder
    facts = {
        "palette": ", ".join(m.palette), "ladder": m.ladder, "goal": m.goal, "policy": m.policy, "seed": f"{m.seed}",
        "hash": m.hash, "versions": ", ".join(f"{name} {version}" for name, version in m.versions.items()),
    }  # fmt: skip
    config, where = quote(str(folder / CONFIG)), quote(str(folder))
    again = Code(f"rlab benchmark make --config {config} --out bench/again\nrlab benchmark verify {where}")
    sections = [benchmark_section(benchmark, report), Section("How it was made", [Facts(facts), again])]
    if samples:
        sections.insert(1, _severities(benchmark, samples))
    return Page(f"Benchmark {benchmark.name}", sections)


def _severities(benchmark: Benchmark, samples: int) -> Section:
    """The first flipped samples of the first victim, from the original to their most severe level."""
    victim, shape = benchmark.victims[0], benchmark.manifest.shape
    told, shown = Text(f"The first samples of {victim}, as stored."), list[Block]()
    for flip in benchmark.stored(victim, benchmark.base_level)[:samples]:
        rows = [row for row in benchmark.rows if row["place"] == flip["place"] and row["victim"] in ("", victim)]
        rows = [row for row in rows if row["reached"]]
        names = []
        for row in rows:
            made, label = ("label", row["label"]) if row["predicted"] is None else ("predicted", row["predicted"])
            names.append(f"{row['id']}, {row['level']}: {made} {benchmark.class_name(label)}, L2 {number(row['l2'])}")
        drawn = thumbnails(benchmark.read(rows), names, shape.bounds, shape.rate, SIDE)
        shown += [replace(each, columns=len(rows)) if isinstance(each, Gallery) else each for each in drawn]
    galleries = all(isinstance(each, Gallery) for each in shown)
    return Section("From mild to severe", [told, *([Beside(shown)] if galleries else shown)])


def draw_report(report: BenchmarkReport) -> Figure:
    """One panel per set with a curve per model; ticks at the top name the levels at their mean L2."""
    charts = []
    for graded in report.sets:
        curves = []
        for model in report.models:
            rows = [row for row in report.curves if row["set"] == graded.name and row["model"] == model]
            l2, accuracy, *band = (np.array([row[name] for row in rows]) for name in ("l2", "accuracy", "low", "high"))
            curves.append(Curve(model, l2, accuracy, (band[0], band[1])))
        charts.append(Chart(f"made against {plain(graded.name, 34)}", curves, "L2", "accuracy", percent=True))
    facts = [f"models: {len(report.models)}", f"sets: {len(report.sets)}"]
    facts += ["a sample counts as lost from the smallest L2 that fools the model"]
    facts += ["ticks at the top: mean L2 of a level", "bands: 95% intervals"]
    panels = [charts[at : at + _ACROSS] for at in range(0, len(charts), _ACROSS)]
    with matplotlib.rc_context(STYLE):
        figure = draw_panels(["accuracy against distance", *flow(facts, WIDE)], panels, height=3.6)
        for ax, graded in zip(figure.axes[1:], report.sets, strict=True):  # the first holds the header
            top, names = ax.secondary_xaxis("top"), [plain(point, 12) for point in graded.points]
            top.set_xticks(list(graded.severity), names, rotation=35, ha="left", fontsize=7.5)
            top.tick_params(length=2, width=0.6, color="#777777")
            top.spines["top"].set_visible(False)
        return figure


def draw_distances(benchmark: Benchmark) -> Figure:
    """The share of samples that have no file within a distance, for every set and level."""
    curves = []
    for victim, level, rows in benchmark.sets():
        left = 1 - np.arange(len(rows) + 1) / len(benchmark.of(victim, level))
        curves.append(Curve(f"{victim}, {level}", [0.0, *sorted(row["l2"] for row in rows)], left))
    chart = Chart("samples without a file up to an L2", curves, "L2", percent=True, steps=True)
    return draw_panels([f"benchmark {benchmark.name}"], [[chart]])
