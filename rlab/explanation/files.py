"""The folder of `rlab explain`: arrays, scores, tables and the inputs to draw."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from rlab.data.batch import Batch
from rlab.errors import FolderError
from rlab.explanation.words import waves_of
from rlab.present.page import Page, write_page
from rlab.runs.fingerprint import data_fingerprint
from rlab.storage.files import finite, read_arrays, write_arrays, write_atomically, write_csv
from rlab.storage.names import file_name
from rlab.storage.resume import Mark, Resume, open_run

if TYPE_CHECKING:
    from rlab.explanation.explanation import Explanation
    from rlab.explanation.method_comparison import MethodComparison

INPUTS = "inputs.safetensors"
_FACTS = ("ids", "bounds", "classes", "unit", "rate", "r_peaks", "leads", "target")
SCORES, GALLERY, ARRAYS = "scores.csv", "gallery.html", "arrays"
REGIONS, WAVES, CLASSES, REPORT = "regions.csv", "waves.csv", "_by_class.csv", "report.html"


def class_rows(explanation: Explanation, batch: Batch) -> list[dict[str, Any]]:
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


@contextmanager
def open_explanation(folder: Path, about: Mapping[str, Mark]) -> Iterator[Resume]:
    """Open a folder for explanations; a later explanation replaces an earlier one by the same method.

    All are drawn together, so the folder belongs to what they are `about`: the first inputs, model and class.
    """
    with open_run(folder, {"command": "explain"}) as resume:
        for key, mark in about.items():
            resume.refuse_other(key, mark)
        yield resume
        for key, mark in about.items():
            if not resume.holds(key, mark):
                resume.record(key, mark, None)


def inputs_mark(batch: Batch) -> dict[str, Mark]:
    """What every explanation of these inputs is about."""
    return {"the data": data_fingerprint(batch)}


def save_explanation(explanation: Explanation, batch: Batch, folder: Path, shown: int) -> None:
    """Write `NAME.safetensors`, `NAME.npz` (with ids) and tables, and store the first `shown` inputs for the page."""
    with open_explanation(folder, inputs_mark(batch)) as resume:
        resume.create()
        save_inputs(batch, folder, shown)
        if explanation.regions is not None:
            write_csv(folder / REGIONS, explanation.regions.rows(batch, explanation.labels))
        if explanation.waves is not None:
            write_csv(folder / WAVES, explanation.waves.rows(batch, explanation.labels))
        write_csv(folder / f"{file_name(explanation.method)}{CLASSES}", class_rows(explanation, batch))
        save_arrays(explanation, batch, folder)


def save_arrays(explanation: Explanation, batch: Batch, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file_name(explanation.method)}.safetensors"
    setting = json.dumps({"rule": explanation.rule, "gradients": explanation.gradients})
    write_arrays(path, {name: array.contiguous() for name, array in explanation.arrays.items()}, setting)
    buffer = io.BytesIO()
    plain: dict[str, Any] = {name: array.numpy() for name, array in explanation.arrays.items()}
    np.savez_compressed(buffer, ids=np.array(batch.ids), **plain)
    write_atomically(path.with_suffix(".npz"), buffer.getvalue())


def save_comparison(comparison: MethodComparison, folder: Path, title: str, limit: int) -> Path:
    """Write every method's arrays, scores.csv with one row per method and sample, and gallery.html."""
    with open_explanation(folder, inputs_mark(comparison.batch)) as resume:
        resume.create()
        save_inputs(comparison.batch, folder, limit)
        for method in comparison.judged.values():
            save_arrays(method.explanation, comparison.batch, folder / ARRAYS)
        write_csv(folder / SCORES, comparison.records())
        return write_page(Page(title, [comparison.section(limit)]), folder / GALLERY)


def save_inputs(batch: Batch, folder: Path, limit: int) -> None:
    """Store the first `limit` inputs for the page, bounded values in 256 steps."""
    if not limit:
        return (folder / INPUTS).unlink(missing_ok=True)
    shown = batch[: min(limit, len(batch))]
    x, (low, high) = shown.x, shown.bounds
    if torch.isfinite(torch.tensor(shown.bounds)).all():
        x = ((x - low) / (high - low) * 255).round().clamp(0, 255).to(torch.uint8)
    stored = {"x": x, "y": shown.y} | ({} if shown.masks is None else {"masks": shown.masks})
    facts = {name: getattr(shown, name) for name in _FACTS}
    write_arrays(folder / INPUTS, {name: each.contiguous() for name, each in stored.items()}, json.dumps(finite(facts)))


def read_inputs(folder: Path) -> Batch | None:
    """What `save_inputs` stored, if anything."""
    if not (folder / INPUTS).is_file():
        return None
    arrays, text = read_arrays(folder / INPUTS)
    try:
        stored = json.loads(text or "{}")
        facts: dict[str, Any] = {name: stored[name] for name in _FACTS}
        low, high = map(float, facts["bounds"])
        x = arrays["x"].float() / 255 * (high - low) + low if arrays["x"].dtype == torch.uint8 else arrays["x"]
        facts |= {name: tuple(facts[name]) for name in ("ids", "classes", "leads")} | {"bounds": (low, high)}
        facts["r_peaks"] = facts["r_peaks"] and tuple(map(tuple, facts["r_peaks"]))
        return Batch(x, arrays["y"], masks=arrays.get("masks"), **facts)
    except (KeyError, TypeError, ValueError) as error:
        raise FolderError(f"cannot read {folder / INPUTS} ({error}): remove it, or explain again") from error
