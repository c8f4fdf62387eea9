"""Save the report of `rlab benchmark run` as CSV, JSON and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlab.benchmarking.picture import draw_report
from rlab.results.plots.save import save_figure
from rlab.storage.files import write_csv, write_json
from rlab.storage.resume import Resume, open_run

if TYPE_CHECKING:
    from rlab.benchmarking.report import BenchmarkReport

REPORT = "report.json"
TABLES = {  # file name: the field of a report that it holds
    "accuracy": "levels", "distortions": "distortions", "transfer": "transfer", "areas": "areas",
    "corruptions": "corruptions", "curves": "curves",
}  # fmt: skip


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
