"""What `rlab explain` leaves on disk: arrays in safetensors and .npz, one row a method and sample, the page of pictures."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from rlab.data.batch import Batch
from rlab.explanation.base import Explanation
from rlab.explanation.gallery import write_gallery
from rlab.explanation.judge import MethodComparison
from rlab.runs.files import write_arrays, write_atomically


def save_explanation(one: Explanation, batch: Batch, folder: Path) -> Path:
    """`NAME.safetensors` and `NAME.npz` with maps, mask, labels and queries; the .npz also holds the ids."""
    folder.mkdir(parents=True, exist_ok=True)
    held = {"maps": one.maps, "mask": one.mask, "labels": one.labels, "queries": one.queries}
    path = folder / f"{one.method}.safetensors"
    write_arrays(path, {name: value.contiguous() for name, value in held.items()}, f'{{"rule": "{one.rule}"}}')
    buffer = io.BytesIO()
    plain: dict[str, Any] = {name: value.numpy() for name, value in held.items()}
    np.savez_compressed(buffer, ids=np.array(batch.ids), **plain)
    write_atomically(path.with_suffix(".npz"), buffer.getvalue())
    return path


def rows(comparison: MethodComparison) -> list[dict[str, Any]]:
    """One flat record a method and sample."""
    return [
        {"method": name, "id": sample, **{score: _plain(one.scores, score, i) for score in comparison.names}}
        for name, one in comparison.judged.items()
        for i, sample in enumerate(comparison.batch.ids)
    ]


def _plain(scores: Any, name: str, row: int) -> float | str:
    return float(scores[name][row]) if name in scores else ""


def save_comparison(comparison: MethodComparison, folder: Path, title: str, limit: int) -> Path:
    """Arrays of every method, scores.csv and gallery.html."""
    for one in comparison.judged.values():
        save_explanation(one.explanation, comparison.batch, folder / "arrays")
    text, found = io.StringIO(), rows(comparison)
    table = csv.DictWriter(text, fieldnames=list(found[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(found)
    write_atomically(folder / "scores.csv", text.getvalue().encode())
    return write_gallery(comparison, folder / "gallery.html", title, limit)
