"""A report in its folder: CSV files, report.json and a picture, written and read back."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlab.benchmarking.folder import Benchmark
from rlab.benchmarking.run import BenchmarkReport
from rlab.benchmarking.scores import Standing, curves_of
from rlab.errors import InputError
from rlab.runs.files import read_json, write_atomically, write_csv, write_json
from rlab.stats import Estimate

REPORT, DEFAULT = "report.json", Path("results", "report")  # DEFAULT: below the benchmark's folder
_TABLES = {  # names of files, and the fields of a report they hold
    "accuracy": "levels", "distortions": "distortions", "transfer": "transfer", "areas": "areas",
    "corruptions": "corruptions",
}  # fmt: skip


def save_report(report: BenchmarkReport, folder: str | Path) -> Path:
    """CSV files, report.json and report.png in a folder; files of an earlier report are replaced."""
    from rlab.benchmarking.picture import draw_report

    folder = Path(folder)
    ranking = [
        {"rank": s.rank, "model": s.model, "area": s.area.value, "low": s.area.low, "high": s.area.high,
         "best": s.best, "worst": s.worst, "victim_of": " ".join(s.victim_of)}
        for s in report.standings
    ]  # fmt: skip
    tables: dict[str, Sequence[Mapping[str, Any]]] = {name: getattr(report, field) for name, field in _TABLES.items()}
    tables |= {"ranking": ranking}
    for name, rows in tables.items():
        write_csv(folder / f"{name}.csv", rows)
    write_json(folder / REPORT, {"models": report.models, "asked": report.asked, "seed": report.seed, **tables})
    picture = io.BytesIO()
    draw_report(report).savefig(picture, format="png")
    write_atomically(folder / "report.png", picture.getvalue())
    return folder


def read_report(benchmark: Benchmark, folder: Path) -> BenchmarkReport:
    """What `save_report` wrote of this benchmark, as it was."""
    plain = read_json(folder / REPORT)
    try:
        return BenchmarkReport(
            models=tuple(plain["models"]),
            curves=tuple(curves_of(benchmark)),
            standings=tuple(map(_standing, map(_with_nan, plain["ranking"]))),
            asked=plain["asked"],
            seed=plain["seed"],
            **{field: tuple(map(_with_nan, plain[name])) for name, field in _TABLES.items()},
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder / REPORT} was not written by rlab: {type(error).__name__} {error}") from error


def _with_nan(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: math.nan if value is None else value for key, value in row.items()}


def _standing(row: Mapping[str, Any]) -> Standing:
    area = Estimate(row["area"], row["low"], row["high"])
    return Standing(row["model"], area, row["rank"], row["best"], row["worst"], tuple(row["victim_of"].split()))
