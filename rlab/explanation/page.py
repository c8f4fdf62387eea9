"""The pages of folders that `rlab explain` wrote."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import FolderError
from rlab.explanation.explanation import Explanation
from rlab.explanation.files import ARRAYS, CLASSES, INPUTS, REGIONS, SCORES, WAVES, read_inputs
from rlab.explanation.method_comparison import RULES, MethodComparison, ScoredMethod, score_table
from rlab.explanation.method_comparison import SCORES as KNOWN
from rlab.explanation.viewers import maps_sections
from rlab.present.page import Page, Section, Text
from rlab.storage.files import read_arrays, read_csv
from rlab.storage.names import file_name


def explanation_page(folder: Path) -> Page:
    """The page of a folder that `rlab explain --compare` wrote."""
    if (batch := read_inputs(folder)) is not None:
        section = _read_comparison(folder, batch).section()
    else:
        section = Section("Scores", [score_table(read_scores(folder), intervals=True), Text(RULES, quiet=True)])
    return Page(f"What decides: {folder.name}", [section])


def maps_page(folder: Path) -> Page:
    """The page of a folder that `rlab explain` wrote: maps of the samples, and each method's queries and masks."""
    stored = sorted(path for path in folder.glob("*.safetensors") if path.name != INPUTS)
    explained = {path.stem: _read_explanation(path, path.stem) for path in stored}
    classes = {path.name.removesuffix(CLASSES): read_csv(path) for path in sorted(folder.glob(f"*{CLASSES}"))}
    regions, waves = (read_csv(path) if (path := folder / name).exists() else None for name in (REGIONS, WAVES))
    return Page(f"What decides: {folder.name}", maps_sections(explained, read_inputs(folder), classes, regions, waves))


def read_scores(folder: Path) -> dict[str, dict[str, Tensor]]:
    """Scores (n,) by method and name; a missing score is absent."""
    columns: dict[str, dict[str, list[float]]] = {}
    for row in read_csv(folder / SCORES):
        own = columns.setdefault(row.pop("method"), {})
        for name, value in row.items():
            if name in KNOWN and value != "":
                own.setdefault(name, []).append(float(value))
    return {
        method: {name: torch.tensor(values, dtype=torch.float64) for name, values in own.items()}
        for method, own in columns.items()
    }


def read_comparison(folder: Path, batch: Batch) -> MethodComparison:
    """Read what `save_comparison` wrote, given the explained batch."""
    comparison = _read_comparison(folder, batch)
    for scored in comparison.judged.values():
        if len(scored.explanation) != len(batch):
            raise FolderError(f"{folder} explains {len(scored.explanation)} samples, not the {len(batch)} expected")
    return comparison


def _read_comparison(folder: Path, batch: Batch) -> MethodComparison:
    """The comparison; `batch` may hold only the first explained samples."""
    judged = {}
    for name, scores in read_scores(folder).items():
        path = folder / ARRAYS / f"{file_name(name)}.safetensors"
        judged[name] = ScoredMethod(_read_explanation(path, name), scores)
    return MethodComparison(batch, judged)


def _read_explanation(path: Path, name: str) -> Explanation:
    arrays, setting = read_arrays(path)
    stored: dict[str, Any] = {**json.loads(setting or "{}"), **arrays}
    return Explanation(method=name, seconds=math.nan, **stored)
