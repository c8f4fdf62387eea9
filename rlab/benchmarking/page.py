"""The section of a benchmark: what was made, how models fare on it, and what they make of each other's sets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from rlab.benchmarking import Benchmark, Report
from rlab.benchmarking.picture import draw_report
from rlab.benchmarking.table import RULES, share, worst_uniform
from rlab.present.inline import figure_address
from rlab.present.page import Block, Cell, Gallery, Picture, Section, Table, Text
from rlab.present.tables import number


def benchmark_section(
    benchmark: Benchmark, report: Report | None, verified: Mapping[str, Any] | None = None
) -> Section:
    blocks: list[Block] = [_made(benchmark)]
    if verified is not None:
        wrong = verified["mismatches"]
        blocks.append(
            Text(
                f"{verified['files']} files checked: "
                + ("; ".join(wrong[:5]) if wrong else "every hash, distance and flip holds.")
            )
        )
    if report is not None:
        drawn = Picture(figure_address(draw_report(report), 90), "Accuracy against severity, and the transfer matrix")
        blocks += [Gallery([drawn]), *(_levels(report, curve.name) for curve in report.curves)]
        blocks += [_transfer(report), *_uniform(report), Text(RULES, quiet=True)]
    return Section("Benchmark", blocks)


def _made(benchmark: Benchmark) -> Table:
    rows = []
    for victim in benchmark.victims:
        for level in benchmark.ladder.names:
            tried = benchmark.of(victim, level)
            there = [row for row in tried if row["reached"]]
            l2 = number(fmean(row["l2"] for row in there)) if there else "–"
            rows.append([victim, level, f"{len(there)} of {len(tried)}", l2])
    return Table(["made against", "level", "samples", "mean L2"], rows, "The sets", words=2)


def _levels(report: Report, name: str) -> Table:
    curve = next(one for one in report.curves if one.name == name)
    head = [
        "model",
        *(f"{point} (L2 {l2:.3g})" for point, l2 in zip(curve.points, curve.severity, strict=True)),
        "area",
    ]
    areas = {row["model"]: row["area"] for row in report.areas if row["set"] == name}
    rows = []
    for model in report.models:
        mine = [row for row in report.levels if row["set"] == name and row["model"] == model]
        rows.append([model, *(share(row["accuracy"]) for row in mine), number(areas[model])])
    return Table(head, rows, f"Accuracy on {name}, {len(curve.labels)} samples")


def _transfer(report: Report) -> Table:
    sets, models, matrix = report.matrix()
    rows = [[name, *map(share, cells.tolist())] for name, cells in zip(sets, matrix, strict=True)]
    return Table(
        ["made against", *models], rows, f"Transfer: accuracy on the files of each set at {report.shared_level}"
    )


def _uniform(report: Report) -> list[Block]:
    rows: list[list[str | Cell]] = []
    for row in worst_uniform(report):
        known = not math.isnan(row["uniform"])
        worse = Cell("harder" if row["benchmark"] < row["uniform"] else "not harder" if known else "–")
        rows.append([row["set"], row["level"], row["model"], share(row["clean"]), share(row["benchmark"]),
                     f"{share(row['uniform'])} {row['corruption'] if known else ''}", worse])  # fmt: skip
    head = ["set", "level", "model", "clean", "benchmark", "worst uniform corruption", ""]
    return (
        [Table(head, rows, "Beside the same filters over the whole input, at equal mean L2", words=3)] if rows else []
    )


def benchmark_report(folder: Path) -> tuple[Benchmark, Report | None]:
    """A benchmark folder, and what models did on it where they were run."""
    from rlab.auditing.stored import REPORT, read_report

    found = Benchmark.load(folder)
    kept = folder / "results" / "report"
    return found, read_report(found, kept) if (kept / REPORT).is_file() else None
