"""Results read back from their folders, so that a page needs neither the model nor a query."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.core.result import AttackResult
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation import Explanation, Judged, MethodComparison
from rlab.runs.files import read_arrays

SCORES = "scores.csv"


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is missing: the folder is not whole, run its command again") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from error


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
