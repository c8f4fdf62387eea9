"""What `rlab explain` leaves on disk: arrays in safetensors and .npz, one row a method and sample, the page of pictures."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.explanation.base import Explanation
from rlab.explanation.judge import MethodComparison, ScoredMethod
from rlab.explanation.page import GALLERY, SCORES, explain_section, read_scores
from rlab.present.page import Page, write_page
from rlab.runs.files import read_arrays, write_arrays, write_atomically, write_csv

ARRAYS = "arrays"


def save_explanation(explanation: Explanation, batch: Batch, folder: Path) -> Path:
    """`NAME.safetensors` and `NAME.npz` with maps, mask, labels and queries; the .npz also holds the ids."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{explanation.method}.safetensors"
    setting = json.dumps({"rule": explanation.rule, "gradients": explanation.gradients})
    write_arrays(path, {name: array.contiguous() for name, array in explanation.arrays.items()}, setting)
    buffer = io.BytesIO()
    plain: dict[str, Any] = {name: array.numpy() for name, array in explanation.arrays.items()}
    np.savez_compressed(buffer, ids=np.array(batch.ids), **plain)
    write_atomically(path.with_suffix(".npz"), buffer.getvalue())
    return path


def save_comparison(comparison: MethodComparison, folder: Path, title: str, limit: int) -> Path:
    """Arrays of every method, scores.csv and gallery.html."""
    for method in comparison.judged.values():
        save_explanation(method.explanation, comparison.batch, folder / ARRAYS)
    write_csv(folder / SCORES, records(comparison))
    return write_page(Page(title, [explain_section(comparison, limit)]), folder / GALLERY)


def records(comparison: MethodComparison) -> list[dict[str, Any]]:
    """One flat record a method and sample; a score that was left out is empty."""
    return [
        {"method": name, "id": sample}
        | {score: float(method.scores[score][i]) if score in method.scores else "" for score in comparison.names}
        for name, method in comparison.judged.items()
        for i, sample in enumerate(comparison.batch.ids)
    ]


def read_comparison(folder: Path, batch: Batch) -> MethodComparison:
    """What `save_comparison` wrote, with the batch it was made of."""
    judged = {}
    for name, scores in read_scores(folder).items():
        arrays, setting = read_arrays(folder / ARRAYS / f"{name}.safetensors")
        if len(arrays["maps"]) != len(batch):
            raise InputError(f"{folder} explains {len(arrays['maps'])} samples, not the {len(batch)} expected")
        stored: dict[str, Any] = {"rule": "", **json.loads(setting or "{}"), **arrays}
        judged[name] = ScoredMethod(Explanation(method=name, seconds=math.nan, **stored), scores)
    return MethodComparison(batch, judged)
