"""What `rlab explain` leaves: arrays in safetensors and .npz, one row of scores a method and sample, the page of pictures."""

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
from rlab.errors import InputError
from rlab.explanation.base import Explanation
from rlab.explanation.pictures import about as told
from rlab.explanation.pictures import arrays, picture
from rlab.explanation.scores import RULES, MethodComparison, ScoredMethod, score_table
from rlab.present.inline import file_address, image_address
from rlab.present.page import Block, Gallery, Page, Picture, Section, Text, write_page
from rlab.present.table import Share, Table
from rlab.runs.files import read_arrays, read_csv, write_arrays, write_atomically, write_csv
from rlab.runs.names import file_name
from rlab.runs.resume import Resume, open_run

SCORES, GALLERY, ARRAYS, PICTURES = "scores.csv", "gallery.html", "arrays", "pictures"
REGIONS = "regions.csv"


def explain_section(comparison: MethodComparison, limit: int | None = None) -> Section:
    """Scores with their intervals, those left out, and the first `limit` samples, one column a method."""
    samples = range(len(comparison.batch))[:limit]
    legend = "Heat is where the decision rests, by each method; the line, or the bar beneath a signal, is its mask."
    blocks: list[Block] = [Text(f"{line}.") for line in comparison.left_out]
    blocks += [comparison.table(intervals=True), Text(RULES, quiet=True), Text(legend)]
    blocks.append(Gallery([shot for row in samples for shot in _shots(comparison, row)], 1 + len(comparison.judged)))
    return Section("Explanations", blocks)


def _shots(comparison: MethodComparison, row: int) -> list[Picture]:
    """One sample: the input with its ground truth, then the map of each method."""
    batch = comparison.batch
    truth = None if batch.masks is None else batch.masks[row].numpy()
    label = int(next(iter(comparison.judged.values())).explanation.labels[row])
    about = f"{batch.ids[row]}: {batch.label_name(label)}" + ("" if truth is None else "; the line is the ground truth")
    shown = image_address(picture(batch.x[row].numpy(), None, truth, batch.bounds))
    shots = [Picture(shown, "the input", "input", about)]
    for name, method in comparison.judged.items():
        shown = image_address(
            picture(*arrays(method.explanation, batch, row), batch.bounds, told(method.explanation, batch, row))
        )
        dice = f"Dice {float(method.scores['dice'][row]):.2f}" if "dice" in method.scores else ""
        shots.append(Picture(shown, f"the map of {name}", name, dice))
    return shots


def explanation_page(folder: Path) -> Page:
    """The page of a folder that `rlab explain --compare` wrote."""
    note = f"The inputs are not stored with explanations; {GALLERY} in the same folder shows them side by side."
    table, notes = score_table(read_scores(folder), intervals=True), [Text(line, quiet=True) for line in (RULES, note)]
    return Page(f"Explanations {folder.name}", [Section("Scores", [table, *notes])])


def maps_page(folder: Path) -> Page:
    """The page of a folder that `rlab explain` wrote: what each method asked, what its masks cover, and its pictures."""
    rows: list[list[str | float | Share]] = []
    for path in sorted(folder.glob("*.safetensors")):
        arrays, _ = read_arrays(path)
        spent, share = float(arrays["queries"].float().mean()), float(arrays["mask"].float().mean())
        rows.append([path.stem, len(arrays["maps"]), spent, Share(share)])
    table = Table(["method", "samples", "queries\na sample", "mask\ncovers"], rows)
    drawn = sorted(path for path in (folder / PICTURES).iterdir() if path.suffix in (".png", ".gif"))
    shots = [Picture(file_address(path), f"the map of {path.stem}", caption=path.stem) for path in drawn]
    blocks: list[Block] = [table, *([Gallery(shots, 3)] if shots else [])]
    if (folder / REGIONS).exists():
        blocks += _regions(folder / REGIONS)
    return Page(f"Explanations {folder.name}", [Section("Explanations", blocks)])


def _regions(path: Path) -> list[Block]:
    """The settled regions with their intervals, and how many are not settled."""
    stored = read_csv(path)
    rows: list[list[str | float | Share]] = []
    for row in stored:
        if row["settled"] == "True":
            rows.append(
                [row["id"], row["class"], row["region"], *(float(row[name]) for name in ("effect", "low", "high"))]
            )
    head = ["sample", "class", "region", "removing it lowers\nthe probability by", "from", "to"]
    left = f"{len(stored) - len(rows)} of {len(stored)} regions are not settled: their 90% intervals include 0."
    return [Table(head, rows, "Regions whose 90% interval excludes 0"), Text(left, quiet=True)]


def read_scores(folder: Path) -> dict[str, dict[str, Tensor]]:
    """By method and score, (n,); a score that was left out is absent."""
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
    """A folder for explanations, later ones in place of those of the same names; folders of other commands are refused."""
    return open_run(folder, {"command": "explain"}, known=(SCORES, PICTURES))


def save_explanation(explanation: Explanation, batch: Batch, folder: Path) -> Path:
    """`NAME.safetensors` and `NAME.npz` with maps, mask, labels and queries; the .npz also holds the ids."""
    with open_explanation(folder) as resume:
        resume.create()
        if explanation.regions is not None:
            write_csv(folder / REGIONS, explanation.regions.rows(batch, explanation.labels))
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
    """Arrays of every method, scores.csv with one row a method and sample, and gallery.html; a score left out is empty."""
    rows: list[dict[str, Any]] = []
    for name, method in comparison.judged.items():
        columns = {
            score: method.scores[score].tolist() if score in method.scores else None for score in comparison.names
        }
        for i, sample in enumerate(comparison.batch.ids):
            values = {score: "" if column is None else column[i] for score, column in columns.items()}
            rows.append({"method": name, "id": sample, **values})
    with open_explanation(folder) as resume:
        resume.create()
        for method in comparison.judged.values():
            _save_arrays(method.explanation, comparison.batch, folder / ARRAYS)
        write_csv(folder / SCORES, rows)
        return write_page(Page(title, [explain_section(comparison, limit)]), folder / GALLERY)


def read_comparison(folder: Path, batch: Batch) -> MethodComparison:
    """What `save_comparison` wrote, with the batch it was made of."""
    judged = {}
    for name, scores in read_scores(folder).items():
        arrays, setting = read_arrays(folder / ARRAYS / f"{file_name(name)}.safetensors")
        if len(arrays["maps"]) != len(batch):
            raise InputError(f"{folder} explains {len(arrays['maps'])} samples, not the {len(batch)} expected")
        stored: dict[str, Any] = {"rule": "", **json.loads(setting or "{}"), **arrays}
        judged[name] = ScoredMethod(Explanation(method=name, seconds=math.nan, **stored), scores)
    return MethodComparison(batch, judged)
