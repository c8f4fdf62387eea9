"""A report as tables that fit a terminal, and as CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from rlab.benchmarking.run import Report
from rlab.runs.files import write_atomically

RULES = (
    "Accuracy counts every sample the set's victim had right; a sample stands on its strongest set up to the level. The area "
    "is the mean accuracy over the range of mean L2. Brackets: 95% bootstrap intervals, the same samples for all models."
)


def ranking_table(report: Report) -> Table:
    """Best first; a star marks a model that a set was made against."""
    table = Table(title="Ranking", title_justify="left")
    for heading in ("rank", "model", "area under accuracy-severity", "rank in 95%", "rows asked"):
        table.add_column(heading, justify="left" if heading == "model" else "right", overflow="fold")
    for one in report.standings:
        area = f"{one.area.value:.3f} [{one.area.low:.3f}, {one.area.high:.3f}]"
        star = " *" if one.victim_of else ""
        table.add_row(str(one.rank), one.model + star, area, f"{one.best}–{one.worst}", f"{report.asked[one.model]:,}")
    return table


def level_tables(report: Report) -> Iterator[Table]:
    """One table a set: models down, severities across."""
    for curve in report.curves:
        table = Table(title=f"Accuracy on {curve.name}, {len(curve.labels)} samples", title_justify="left")
        table.add_column("model", overflow="fold")
        for point, l2 in zip(curve.points, curve.severity, strict=True):
            table.add_column(f"{point}\nL2 {l2:.3g}", justify="right")
        table.add_column("area", justify="right")
        areas = {row["model"]: row["area"] for row in report.areas if row["set"] == curve.name}
        for model in report.models:
            rows = [row for row in report.levels if row["set"] == curve.name and row["model"] == model]
            table.add_row(model, *(share(row["accuracy"]) for row in rows), f"{areas[model]:.3f}")
        yield table


def transfer_table(report: Report, level: str | None = None) -> Table:
    """Made against (down), tested on (across): accuracy on the files of a level; brackets mark a model's own set."""
    sets, models, matrix = report.matrix(level)
    own = {(row["set"], row["model"]) for row in report.transfer if row["own"]}
    table = Table(
        title=f"Transfer at {level or report.shared_level}: made against ↓, tested on →", title_justify="left"
    )
    for heading in ("", *models):
        table.add_column(heading, justify="right" if heading else "left", overflow="fold")
    for name, cells in zip(sets, matrix, strict=True):
        shown = (share(v) if (name, m) not in own else f"({share(v)})" for m, v in zip(models, cells, strict=True))
        table.add_row(name, *shown)
    return table


def distortion_table(report: Report) -> Table:
    """Accuracy by main distortion, all levels together."""
    table = Table(title="Accuracy by main distortion, all levels", title_justify="left")
    for heading in ("set", "distortion", "files", *report.models):
        table.add_column(heading, justify="left" if heading in ("set", "distortion") else "right", overflow="fold")
    groups: dict[tuple[str, str], dict[str, list[tuple[float, int]]]] = {}
    for row in report.distortions:
        cell = groups.setdefault((row["set"], row["distortion"]), {}).setdefault(row["model"], [])
        cell.append((row["accuracy"], row["samples"]))
    for (name, distortion), cells in groups.items():
        counts = {model: sum(n for _, n in pairs) for model, pairs in cells.items()}
        means = (sum(a * n for a, n in cells[m]) / counts[m] for m in report.models)
        table.add_row(name, distortion, str(max(counts.values())), *(share(one) for one in means))
    return table


def corruption_table(report: Report) -> Table | None:
    """The set beside the corruption that hurts most, at equal mean L2."""
    if not report.corruptions:
        return None
    table = Table(title="Against uniform corruptions at equal mean L2: accuracy", title_justify="left")
    for heading in ("set", "level", "L2", "model", "clean", "benchmark", "worst uniform", ""):
        table.add_column(
            heading, justify="right" if heading in ("L2", "clean", "benchmark") else "left", overflow="fold"
        )
    for rows in worst_uniform(report):
        name, worst = rows["corruption"], rows["uniform"]
        verdict = "harder" if rows["benchmark"] < worst else "not harder" if worst == worst else "–"
        table.add_row(
            rows["set"], rows["level"], f"{rows['l2']:.3g}", rows["model"], share(rows["clean"]),
            share(rows["benchmark"]), f"{share(worst)} {name if worst == worst else ''}", verdict,
        )  # fmt: skip
    return table


def worst_uniform(report: Report) -> list[dict[str, Any]]:
    """For every set, level and model the row of the corruption with the lowest accuracy; one that could not be made so
    strong does not count."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in report.corruptions:
        groups.setdefault((row["set"], row["level"], row["model"]), []).append(row)
    return [min(rows, key=lambda row: (math.isnan(row["uniform"]), row["uniform"])) for rows in groups.values()]


def share(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1%}"


def save_report(report: Report, folder: str | Path) -> Path:
    """CSV files, report.json and report.png in a folder; files of an earlier report are replaced."""
    from rlab.benchmarking.picture import draw_report

    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    standings = [
        {"rank": s.rank, "model": s.model, "area": s.area.value, "low": s.area.low, "high": s.area.high,
         "best": s.best, "worst": s.worst, "victim_of": " ".join(s.victim_of)}
        for s in report.standings
    ]  # fmt: skip
    tables: dict[str, Sequence[Mapping[str, Any]]] = {
        "accuracy": report.levels, "distortions": report.distortions, "transfer": report.transfer,
        "areas": report.areas, "corruptions": report.corruptions, "ranking": standings,
    }  # fmt: skip
    for name, rows in tables.items():
        write_atomically(place / f"{name}.csv", _csv(rows))
    plain = {name: [dict(row) for row in rows] for name, rows in tables.items()}
    whole = {"models": report.models, "asked": dict(report.asked), "seed": report.seed, **plain}
    write_atomically(place / "report.json", (json.dumps(_finite(whole), indent=1) + "\n").encode())
    out = io.BytesIO()
    draw_report(report).savefig(out, format="png")
    write_atomically(place / "report.png", out.getvalue())
    return place


def _csv(rows: Sequence[Mapping[str, Any]]) -> bytes:
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue().encode()


def _finite(value: Any) -> Any:
    """JSON knows no NaN."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value
