"""A result as rows of a table, one a sample, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.core.distances import NAMES
from rlab.core.status import Status
from rlab.core.trace import Improvements
from rlab.runs.aliases import renamed
from rlab.victims.base import PHASES

if TYPE_CHECKING:
    from rlab.core.result import AttackResult

MARK = "input_digest"  # of a flipped input that was not kept
# Columns whose type cannot be told from rows without anything in them.
LISTS = {
    "improved_at": pa.list_(pa.int64()), "improved_to": pa.list_(pa.float64()), "r_peaks": pa.list_(pa.int64()),
}  # fmt: skip


def to_rows(result: AttackResult) -> list[dict[str, Any]]:
    """One flat record a sample, fit for Parquet."""
    labels, before, after = result.labels.tolist(), result.before.tolist(), result.after.tolist()
    rows = []
    for i, status in enumerate(result.status):
        row: dict[str, Any] = {"id": result.ids[i], "status": status.value, "label": labels[i]}
        row |= {"predicted_before": int(result.before[i].argmax()), "predicted_after": int(result.after[i].argmax())}
        row |= {f"queries_{phase}": int(result.queries[i, j]) for j, phase in enumerate(PHASES[:3])}
        row |= {f"flip_{name}": float(result.flip[name][i]) for name in NAMES}
        row |= {f"final_{name}": float(result.final[name][i]) for name in NAMES}
        row |= {"seconds": float(result.seconds[i]), "seed": int(result.seeds[i]), "r_peaks": list(result.r_peaks[i])}
        row |= {"scores_before": before[i], "scores_after": after[i]}
        row |= {f"improved_{name}": [flip[j] for flip in result.improvements[i]] for j, name in enumerate(("at", "to"))}
        rows.append(row)
    return rows


def from_rows(table: pa.Table) -> dict[str, Any]:
    """The inverse, column by column: the fields of an `AttackResult` that rows hold."""
    table = table.rename_columns(list(renamed(dict.fromkeys(table.column_names))))
    statuses = {status.value: status for status in Status}
    counts = [_numbers(table, f"queries_{phase}", pa.int64()) for phase in PHASES[:3]]
    return {
        "ids": tuple(table["id"].to_pylist()),
        "labels": _numbers(table, "label", pa.int64()),
        "status": tuple(statuses[word] for word in table["status"].to_pylist()),
        "queries": torch.stack([*counts, torch.zeros(len(table), dtype=torch.int64)], 1),
        "before": _numbers(table, "scores_before"),
        "after": _numbers(table, "scores_after"),
        "flip": {name: _numbers(table, f"flip_{name}") for name in NAMES},
        "final": {name: _numbers(table, f"final_{name}") for name in NAMES},
        "seconds": _numbers(table, "seconds"),
        "seeds": _numbers(table, "seed", pa.int64()),
        "improvements": _improvements(table),
        "r_peaks": tuple(map(tuple, _lists(table, "r_peaks"))),
    }


def _numbers(table: pa.Table, name: str, kind: pa.DataType | None = None) -> Tensor:
    """A column (n,), or (n, k) of lists of one length; floats where no kind is named."""
    column = table[name].combine_chunks()
    listed = pa.types.is_list(column.type)
    values = column.flatten() if listed else column
    if column.null_count or values.null_count or (listed and len(values) % len(column)):
        raise ValueError(f"a value of {name} is missing")
    if listed and len(set(np.diff(_offsets(column)).tolist())) > 1:
        raise ValueError(f"rows of {name} differ in length")
    plain = values.cast(kind or pa.float64()).to_numpy(zero_copy_only=False)
    array = np.array(plain, dtype=np.int64 if kind else np.float32)
    return torch.from_numpy(array.reshape(len(column), -1) if listed else array)


def _offsets(column: Any) -> NDArray[np.int64]:
    return np.asarray(column.offsets.to_numpy(zero_copy_only=False), dtype=np.int64)


def _lists(table: pa.Table, name: str) -> list[Any]:
    """One list a row; empty where the table has none."""
    if name not in table.column_names or pa.types.is_null(table[name].type):
        return [()] * len(table)
    return [row or () for row in table[name].to_pylist()]


def _improvements(table: pa.Table) -> tuple[Improvements, ...]:
    at, to = _lists(table, "improved_at"), _lists(table, "improved_to")
    return tuple(tuple(zip(when, far, strict=True)) for when, far in zip(at, to, strict=True))
