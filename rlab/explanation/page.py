"""The files of `rlab explain` (arrays, scores, regions) and the pages made from them."""

from __future__ import annotations

import io
import json
import math
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlab.data.batch import Batch
from rlab.errors import FolderError
from rlab.explanation.base import Explanation
from rlab.explanation.scores import RULES, MethodComparison, ScoredMethod, score_table
from rlab.explanation.viewers import INPUTS, has_inputs, legend, read_inputs, sample_viewers, save_inputs
from rlab.explanation.words import waves_of
from rlab.present.page import Block, Page, Section, Text, write_page
from rlab.present.table import Share, Table
from rlab.storage.files import read_arrays, read_csv, write_arrays, write_atomically, write_csv
from rlab.storage.names import file_name
from rlab.storage.resume import Resume, open_run

SCORES, GALLERY, ARRAYS, PICTURES = "scores.csv", "gallery.html", "arrays", "pictures"
REGIONS, CLASSES, REPORT = "regions.csv", "_by_class.csv", "report.html"


def explanation_page(folder: Path) -> Page:
    """The page of a folder that `rlab explain --compare` wrote."""
    if has_inputs(folder):
        section = _read_comparison(folder, read_inputs(folder)).section()
    else:
        section = Section("Scores", [score_table(read_scores(folder), intervals=True), Text(RULES, quiet=True)])
    return Page(f"Explanations {folder.name}", [section])


def maps_page(folder: Path) -> Page:
    """The page of a folder that `rlab explain` wrote: maps of the samples, and each method's queries and masks."""
    stored = sorted(path for path in folder.glob("*.safetensors") if path.name != INPUTS)
    explained = {path.stem: _read_explanation(path, path.stem) for path in stored}
    rows: list[list[str | float | Share]] = [
        [name, len(each), each.mean_queries, Share(each.mask_share)] for name, each in explained.items()
    ]
    tables: list[Block] = [Table(["method", "samples", "queries\nper sample", "mask\ncovers"], rows)]
    tables += [_by_class(path) for path in sorted(folder.glob(f"*{CLASSES}"))]
    shown: list[Block] = []
    if has_inputs(folder):
        batch = read_inputs(folder)
        fitting = {name: each for name, each in explained.items() if each.maps[0].shape == batch.x[0, 0].shape}
        shown += legend(batch)
        for row in range(min(len(batch), *map(len, fitting.values()))):
            shown += sample_viewers(fitting, batch, row, len(batch) * len(fitting))
    sections = [*([Section("Samples", shown)] if shown else []), Section("Methods", tables)]
    if (folder / REGIONS).exists():
        sections.append(Section("Regions", _regions(folder / REGIONS)))
    return Page(f"Explanations {folder.name}", sections)


def _class_rows(explanation: Explanation, batch: Batch) -> list[dict[str, Any]]:
    """One row per explained class: its samples, probability, mask size, and the waves of beats."""
    rows = []
    for label in explanation.labels.unique().tolist():
        at = (explanation.labels == label).nonzero().flatten()
        row = {"class": batch.label_name(label), "samples": len(at)}
        if explanation.probabilities is not None:
            row["probability"] = round(float(explanation.probabilities[at, label].mean()), 4)
        row["mask covers"] = round(float(explanation.mask[at].float().mean()), 4)
        waves = [shares for i in at.tolist() if (shares := waves_of(explanation, batch, i))]
        row |= {f"map in {w}": round(sum(one[w] for one in waves) / len(waves), 4) for w in (waves[0] if waves else ())}
        rows.append(row)
    return rows


def _by_class(path: Path) -> Table:
    stored = read_csv(path)
    rows: list[list[str | float | Share]] = [
        [row["class"], int(row["samples"]), *(Share(float(row[name])) for name in list(row)[2:])] for row in stored
    ]
    return Table(list(stored[0]), rows, f"By class, {path.name.removesuffix(CLASSES)}")


def _regions(path: Path) -> list[Block]:
    """The settled regions with their intervals, and the number of unsettled ones."""
    stored = read_csv(path)
    rows: list[list[str | float]] = [
        [row["id"], row["class"], row["region"], *(float(row[name]) for name in ("effect", "low", "high"))]
        for row in stored
        if row["settled"] == "True"
    ]
    head = ["sample", "class", "region", "removing it lowers\nthe probability by", "from", "to"]
    left = f"{len(stored) - len(rows)} of {len(stored)} regions are not settled: their 90% intervals include 0."
    return [Table(head, rows, "Regions whose 90% interval excludes 0"), Text(left, quiet=True)]


def read_scores(folder: Path) -> dict[str, dict[str, Tensor]]:
    """Scores (n,) by method and name; a missing score is absent."""
    columns: dict[str, dict[str, list[float]]] = {}
    for row in read_csv(folder / SCORES):
        own = columns.setdefault(row.pop("method"), {})
        for name, value in row.items():
            if name != "id" and value != "":
                own.setdefault(name, []).append(float(value))
    return {
        method: {name: torch.tensor(values, dtype=torch.float64) for name, values in own.items()}
        for method, own in columns.items()
    }


def open_explanation(folder: Path) -> AbstractContextManager[Resume]:
    """Open a folder for explanations; a later explanation replaces an earlier one by the same method."""
    return open_run(folder, {"command": "explain"})


def save_explanation(explanation: Explanation, batch: Batch, folder: Path, shown: int) -> Path:
    """Write `NAME.safetensors`, `NAME.npz` (with ids) and tables, and store the first `shown` inputs for the page."""
    with open_explanation(folder) as resume:
        resume.create()
        save_inputs(batch, folder, shown)
        if explanation.regions is not None:
            write_csv(folder / REGIONS, explanation.regions.rows(batch, explanation.labels))
        write_csv(folder / f"{file_name(explanation.method)}{CLASSES}", _class_rows(explanation, batch))
        return _save_arrays(explanation, batch, folder)


def _save_arrays(explanation: Explanation, batch: Batch, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file_name(explanation.method)}.safetensors"
    setting = json.dumps({"rule": explanation.rule, "gradients": explanation.gradients})
    write_arrays(path, {name: array.contiguous() for name, array in explanation.arrays.items()}, setting)
    buffer = io.BytesIO()
    plain: dict[str, Any] = {name: array.numpy() for name, array in explanation.arrays.items()}
    np.savez_compressed(buffer, ids=np.array(batch.ids), **plain)
    write_atomically(path.with_suffix(".npz"), buffer.getvalue())
    return path


def save_comparison(comparison: MethodComparison, folder: Path, title: str, limit: int) -> Path:
    """Write every method's arrays, scores.csv with one row per method and sample, and gallery.html."""
    rows: list[dict[str, Any]] = []
    for name, own in comparison.judged.items():
        for i, sample in enumerate(comparison.batch.ids):
            scores = {score: own.scores[score][i].item() if score in own.scores else "" for score in comparison.names}
            rows.append({"method": name, "id": sample, **scores})
    with open_explanation(folder) as resume:
        resume.create()
        save_inputs(comparison.batch, folder, limit)
        for method in comparison.judged.values():
            _save_arrays(method.explanation, comparison.batch, folder / ARRAYS)
        write_csv(folder / SCORES, rows)
        return write_page(Page(title, [comparison.section(limit)]), folder / GALLERY)


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
