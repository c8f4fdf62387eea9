"""Explanations on a page: scores by method, and the same inputs side by side."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from rlab.explanation.judge import RULES, MethodComparison, score_table
from rlab.explanation.pictures import arrays, picture
from rlab.present.inline import image_address
from rlab.present.page import Gallery, Page, Picture, Section, Text
from rlab.runs.files import read_csv

SCORES, GALLERY = "scores.csv", "gallery.html"


def explain_section(comparison: MethodComparison, limit: int | None = None) -> Section:
    """Scores with their intervals, those left out, and the first `limit` samples, one column a method."""
    batch = comparison.batch
    samples = range(len(batch) if limit is None else min(limit, len(batch)))
    shown = [shot for row in samples for shot in _shots(comparison, row)]
    return Section(
        "Explanations",
        [
            *(Text(f"{line}.") for line in comparison.left_out),
            comparison.table(intervals=True),
            Text(RULES, quiet=True),
            Text(
                "Heat is where the decision rests, by each method; the line, or the bar beneath a signal, is its mask."
            ),
            Gallery(shown, 1 + len(comparison.judged)),
        ],
    )


def _shots(comparison: MethodComparison, row: int) -> list[Picture]:
    """One sample: the input with its ground truth, then the map of each method."""
    batch = comparison.batch
    truth = None if batch.masks is None else batch.masks[row].numpy()
    label = int(next(iter(comparison.judged.values())).explanation.labels[row])
    about = f"{batch.ids[row]}: {batch.label_name(label)}" + ("" if truth is None else "; the line is the ground truth")
    shown = image_address(picture(batch.x[row].numpy(), None, truth, batch.bounds))
    shots = [Picture(shown, "the input", "input", about)]
    for name, method in comparison.judged.items():
        shown = image_address(picture(*arrays(method.explanation, batch, row), batch.bounds))
        dice = f"Dice {float(method.scores['dice'][row]):.2f}" if "dice" in method.scores else ""
        shots.append(Picture(shown, f"the map of {name}", name, dice))
    return shots


def explanation_page(folder: Path) -> Page:
    """The page of a folder that `rlab explain --compare` wrote."""
    note = f"The inputs are not stored with explanations; {GALLERY} in the same folder shows them side by side."
    table = score_table(read_scores(folder), intervals=True)
    return Page(
        f"Explanations {folder.name}", [Section("Scores", [table, Text(RULES, quiet=True), Text(note, quiet=True)])]
    )


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
