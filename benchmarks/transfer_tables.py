"""The tables of `benchmarks.transfer`: a report's accuracies and matrix, uniform corruptions, time and memory."""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import common
from rlab.benchmarking import Benchmark, BenchmarkReport


def levels(report: BenchmarkReport, folder: Path, against: str, figures: dict[str, float]) -> str:
    """Accuracy of every model at every level of the main benchmark."""
    whole = Benchmark.load(folder)
    curve = next(graded for graded in report.sets if graded.name == f"{whole.name}/{against}")
    cells = {(row["model"], row["level"]): row for row in report.levels if row["set"] == curve.name}
    rows = []
    for model in report.models:
        each = [cells[model, level] for level in curve.points]
        rows.append((model, *(f"{row['accuracy_stored']:.1%}" for row in each)))
        for row in each[1:]:
            figures[f"{model}_{row['level']}_accuracy"] = row["accuracy_stored"]
    stored = ("stored", *(str(cells[report.models[0], level]["stored"]) for level in curve.points))
    l2 = [("L2, mean", *(mean_l2(whole, level) for level in curve.points))]
    head = ("model", *curve.points)
    return "\n\n".join(["## Accuracy by severity", common.table(head, [*rows, stored, *l2])])


def mean_l2(whole: Benchmark, level: str) -> str:
    far = [row["l2"] for row in whole.rows if row["level"] == level and row["victim"] and row["reached"]]
    return f"{sum(far) / len(far):.2f}" if far else "0"


def matrix(report: BenchmarkReport) -> str:
    sets, models, values = report.matrix()
    rows = [(name, *("–" if v != v else f"{v:.1%}" for v in line)) for name, line in zip(sets, values, strict=True)]
    return "\n\n".join(
        ["## Transfer of the flips: made against (rows), tested on (columns)", common.table(("", *models), rows)]
    )


def uniform(report: BenchmarkReport, name: str, own: bool, figures: dict[str, float]) -> str:
    """The drop of the set beside the largest drop of a uniform corruption, for every level and model."""
    rows, lost, key = [], 0, "own" if own else "further"
    for model in report.models:
        for level in dict.fromkeys(row["level"] for row in report.corruptions):
            some = [r for r in report.corruptions if (r["set"], r["model"], r["level"]) == (name, model, level)]
            compared = [r for r in some if r["uniform"] == r["uniform"]]
            if not compared:
                continue
            worst = min(compared, key=lambda r: r["uniform"])
            ours, theirs = worst["clean"] - worst["benchmark"], worst["clean"] - worst["uniform"]
            lost += ours <= theirs
            figures[f"{model}_{level}_drop_over_{key}"] = ours - theirs
            verdict = "yes" if ours > theirs else "no"
            rows.append(
                (model, level, f"{worst['l2']:.2f}", f"{ours:.1%}", f"{theirs:.1%}", worst["corruption"], verdict)
            )
    figures[f"uniform_{key}_not_beaten"] = lost
    figures[f"uniform_{key}_compared"] = len(rows)
    title = "the benchmark's own filters" if own else "filters it does not use"
    head = ("model", "level", "L2", "drop, benchmark", "largest drop, uniform", "by", "larger")
    return "\n\n".join([f"## Uniform corruptions at equal mean L2: {title}", common.table(head, rows)])


def growth(o: argparse.Namespace, made: Sequence[Mapping[str, Any]], figures: dict[str, float]) -> str:
    """Time and memory against samples; an exponent of 1 is linear."""
    rows = []
    for m in made:
        each = 1000 * m["seconds"] / m["images"]
        rows.append(
            (f"{m['images']:,}", f"{m['seconds']:.1f}", f"{each:.1f}", f"{m['megabytes']:.0f}", f"{m['queries']:,}")
        )
    for m in made:
        figures |= {f"make_seconds_{m['images']}": m["seconds"], f"make_megabytes_{m['images']}": m["megabytes"]}
    if len(made) > 1:
        first, last = made[0], made[-1]
        figures["time_exponent"] = math.log(last["seconds"] / first["seconds"]) / math.log(
            last["images"] / first["images"]
        )
    head = ("images", "seconds", "ms an image", "MB beyond models", "queries")
    about = f"{o.threads} threads; memory is the peak beyond what the models and their first answers hold."
    return "\n\n".join(["## Time and memory", about, common.table(head, rows)])
