"""Results read back from their folders, so that a page needs neither the model nor a query."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.benchmarking import Benchmark, Report
from rlab.benchmarking.scores import Standing, curves_of
from rlab.comparison import Estimate
from rlab.core.result import AttackResult
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation import Explanation, Judged, MethodComparison
from rlab.runs.files import read_arrays

REPORT, SCORES = "report.json", "scores.csv"


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is missing: the folder is not whole, run its command again") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from error


def read_report(benchmark: Benchmark, folder: Path) -> Report:
    """What `save_report` wrote of this benchmark, as it was."""
    found = read_json(folder / REPORT)
    try:
        rows = {
            name: tuple(map(_with_nan, found[name]))
            for name in ("accuracy", "distortions", "transfer", "areas", "corruptions")
        }
        return Report(
            models=tuple(found["models"]),
            curves=tuple(curves_of(benchmark)),
            levels=rows["accuracy"],
            distortions=rows["distortions"],
            transfer=rows["transfer"],
            areas=rows["areas"],
            corruptions=rows["corruptions"],
            standings=tuple(map(_standing, found["ranking"])),
            asked=found["asked"],
            seed=found["seed"],
        )
    except (KeyError, TypeError) as error:
        raise InputError(f"{folder / REPORT} was not written by rlab: {type(error).__name__} {error}") from error


def _with_nan(row: dict[str, Any]) -> dict[str, Any]:
    return {key: math.nan if value is None else value for key, value in row.items()}


def _standing(row: dict[str, Any]) -> Standing:
    area = Estimate(*(math.nan if row[key] is None else row[key] for key in ("area", "low", "high")))
    return Standing(row["model"], area, row["rank"], row["best"], row["worst"], tuple(row["victim_of"].split()))


def batch_of(result: AttackResult, rows: list[int]) -> Batch:
    """Samples of a run as data again."""
    setting, at = result.setting, torch.tensor(rows, dtype=torch.int64)
    return Batch(
        x=result.original[at],
        y=result.labels[at],
        ids=tuple(result.ids[i] for i in rows),
        bounds=setting.bounds,
        classes=setting.classes,
        unit=setting.unit,
        rate=setting.rate,
        r_peaks=tuple(result.r_peaks[i] for i in rows),
        leads=setting.leads,
    )


def read_comparison(folder: Path, batch: Batch) -> MethodComparison:
    """What `save_comparison` wrote, with the batch it was made of."""
    scores = _scores(folder / SCORES)
    judged = {}
    for name, columns in scores.items():
        arrays, _ = read_arrays(folder / "arrays" / f"{name}.safetensors")
        if len(arrays["maps"]) != len(batch):
            raise InputError(f"{folder} explains {len(arrays['maps'])} samples, not the {len(batch)} expected")
        kept: dict[str, Any] = {key: arrays[key] for key in ("maps", "mask", "labels", "queries")}
        judged[name] = Judged(Explanation(method=name, **kept, rule="", seconds=math.nan), columns)
    return MethodComparison(batch, judged)


def _scores(path: Path) -> dict[str, dict[str, Tensor]]:
    """By method and score, (n,); a score that was left out is absent."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error}") from error
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        columns = found.setdefault(row["method"], {})
        for name, value in row.items():
            if name not in ("method", "id") and value != "":
                columns.setdefault(name, []).append(float(value))
    return {
        method: {name: torch.tensor(values, dtype=torch.float64) for name, values in columns.items()}
        for method, columns in found.items()
    }
