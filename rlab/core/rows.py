"""A result as rows of a table, one a sample, and back."""

from __future__ import annotations

from itertools import pairwise
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
    columns: dict[str, list[Any]] = {
        "id": list(result.ids),
        "status": [status.value for status in result.status],
        "label": result.labels.tolist(),
        "predicted_before": result.before.argmax(1).tolist(),
        "predicted_after": result.after.argmax(1).tolist(),
        **{f"queries_{phase}": result.queries[:, j].tolist() for j, phase in enumerate(PHASES[:3])},
        **{f"flip_{name}": result.flip[name].tolist() for name in NAMES},
        **{f"final_{name}": result.final[name].tolist() for name in NAMES},
        "seconds": result.seconds.tolist(),
        "seed": result.seeds.tolist(),
        "r_peaks": list(map(list, result.r_peaks)),
        "scores_before": result.before.tolist(),
        "scores_after": result.after.tolist(),
        "improved_at": [[at for at, _ in flips] for flips in result.improvements],
        "improved_to": [[to for _, to in flips] for flips in result.improvements],
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def from_rows(table: pa.Table) -> dict[str, Any]:
    """The inverse, column by column: the fields of an `AttackResult` that rows hold."""
    table = table.rename_columns(list(renamed(dict.fromkeys(table.column_names))))
    statuses = {status.value: status for status in Status}
    counts = [_numbers(table, f"queries_{phase}", whole=True) for phase in PHASES[:3]]
    return {
        "ids": tuple(table["id"].to_pylist()),
        "labels": _numbers(table, "label", whole=True),
        "status": tuple(statuses[word] for word in table["status"].to_pylist()),
        "queries": torch.stack([*counts, torch.zeros(len(table), dtype=torch.int64)], 1),
        "before": _numbers(table, "scores_before"),
        "after": _numbers(table, "scores_after"),
        "flip": {name: _numbers(table, f"flip_{name}") for name in NAMES},
        "final": {name: _numbers(table, f"final_{name}") for name in NAMES},
        "seconds": _numbers(table, "seconds"),
        "seeds": _numbers(table, "seed", whole=True),
        "improvements": _improvements(table),
        "r_peaks": tuple(map(tuple, _lists(table, "r_peaks"))),
    }


def _numbers(table: pa.Table, name: str, whole: bool = False) -> Tensor:
    """A column (n,), or (n, k) of lists of one length, of floats or of whole numbers."""
    column = table[name].combine_chunks()
    listed = pa.types.is_list(column.type)
    values = column.flatten() if listed else column
    if column.null_count or values.null_count or (listed and len(values) % len(column)):
        raise ValueError(f"a value of {name} is missing")
    if listed and len(set(np.diff(_offsets(column)).tolist())) > 1:
        raise ValueError(f"rows of {name} differ in length")
    plain = values.to_numpy(zero_copy_only=False)  # not `cast`, which imports pandas where there is one
    if plain.dtype.kind not in ("iu" if whole else "iuf"):
        raise ValueError(f"values of {name} are no numbers")
    array = np.array(plain, dtype=np.int64 if whole else np.float32)
    return torch.from_numpy(array.reshape(len(column), -1) if listed else array)


def _offsets(column: Any) -> NDArray[np.int64]:
    return np.asarray(column.offsets.to_numpy(zero_copy_only=False), dtype=np.int64)


def _lists(table: pa.Table, name: str) -> list[Any]:
    """One list a row; empty where the table has none."""
    if name not in table.column_names or pa.types.is_null(table[name].type):
        return [()] * len(table)
    column = table[name].combine_chunks()
    if column.null_count:
        return [row or () for row in column.to_pylist()]
    values, (first, *ends) = column.flatten().to_pylist(), _offsets(column).tolist()
    return [values[a - first : b - first] if b > a else () for a, b in pairwise((first, *ends))]


def _improvements(table: pa.Table) -> tuple[Improvements, ...]:
    at, to = _lists(table, "improved_at"), _lists(table, "improved_to")
    return tuple(tuple(zip(when, far, strict=True)) for when, far in zip(at, to, strict=True))
