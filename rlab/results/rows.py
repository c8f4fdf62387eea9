"""Convert a result to a table with one row per sample, and back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.core.distances import NAMES
from rlab.core.status import Status
from rlab.redact import redact
from rlab.results.data import ResultData
from rlab.results.predicted import class_words, predicted
from rlab.storage.tables import StoredTable
from rlab.victims.account import PHASES, STORED

MARK = "input_digest"  # column: digest of a flipped input that was not stored
LEFT_OUT = b"left_out"  # metadata of a chunk's table: samples that could not be read


def to_table(result: ResultData, marks: Sequence[str] | None = None) -> pa.Table:
    """Return one flat record per sample, for Parquet; `marks` are digests of inputs that are not stored."""
    columns = {
        "id": _texts(result.ids),
        "status": _texts([status.value for status in result.status]),
        "label": _column(result.labels),
        "predicted_before": _predictions(result, result.before),
        "predicted_after": _predictions(result, result.after),
        **{f"queries_{phase}": _column(result.queries[:, j]) for j, phase in enumerate(STORED)},
        **{f"flip_{name}": _column(result.flip[name]) for name in NAMES},
        **{f"final_{name}": _column(result.final[name]) for name in NAMES},
        "seed": _column(result.seeds),
        "r_peaks": _lists(result.r_peaks, np.int64),
        "scores_before": _column(result.before),
        "scores_after": _column(result.after),
        "improved_at": _lists([[at for at, _ in flips] for flips in result.improvements], np.int64),
        "improved_to": _lists([[to for _, to in flips] for flips in result.improvements], np.float64),
    } | ({} if marks is None else {MARK: _texts(marks)})
    return pa.Table.from_arrays(list(columns.values()), list(columns))


def _predictions(result: ResultData, answers: Tensor) -> pa.Array:
    """The class with the highest probability, or words for boxes, maps and numbers."""
    if result.setting.target == "classes":
        return _column(answers.argmax(1))
    pairs = zip(answers, result.labels, strict=True)
    return _texts([str(predicted(result.setting, answer, label)) for answer, label in pairs])


# Columns are built from buffers, since `pa.array` would import pandas.
def _plain(values: NDArray[Any]) -> pa.Array:
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def _column(values: Tensor) -> pa.Array:
    """(n,), or (n, k) as lists."""
    plain = values.contiguous().numpy()
    if plain.ndim == 1:
        return _plain(plain)
    ends = np.arange(len(plain) + 1, dtype=np.int32) * plain.shape[1]
    return pa.ListArray.from_arrays(_plain(ends), _plain(plain.reshape(-1)))


def _lists(rows: Sequence[Sequence[float]], kind: type) -> pa.Array:
    ends = np.cumsum([0, *map(len, rows)], dtype=np.int32)
    return pa.ListArray.from_arrays(_plain(ends), _plain(np.array([value for row in rows for value in row], kind)))


def _texts(words: Sequence[str]) -> pa.Array:
    texts = [word.encode() for word in words]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


def to_rows(result: ResultData) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = to_table(result).to_pylist()
    return rows


def to_records(result: ResultData) -> list[dict[str, Any]]:
    """Return one record per sample for people: the stored columns, but with class names, one number of queries (see
    `ResultData.effort`), and R peaks only where there are any."""
    left_out = {f"queries_{phase}" for phase in STORED} | (set() if any(result.r_peaks) else {"r_peaks"})
    records = []
    for at, row in enumerate(to_rows(result)):
        sample = result.sample(at)
        record: dict[str, Any] = {"id": sample.id, "status": sample.status.value, "succeeded": sample.succeeded}
        for name in ("label", "predicted_before", "predicted_after"):
            record |= {name: (value := getattr(sample, name)), f"{name}_name": class_words(result.setting, value)}
        record |= {"queries": sample.queries, "l2": sample.l2}
        records.append(record | {name: value for name, value in row.items() if name not in left_out | record.keys()})
    return records


def with_losses(table: pa.Table, losses: Iterable[tuple[str, str]]) -> pa.Table:
    """Add (id, reason) of the samples that could not be read to a chunk's table."""
    return table.replace_schema_metadata({LEFT_OUT: json.dumps(redact(list(losses)))})


def losses_of(table: pa.Table) -> list[tuple[str, str]]:
    return [(name, why) for name, why in json.loads((table.schema.metadata or {}).get(LEFT_OUT, "[]"))]


def from_rows(table: pa.Table | StoredTable) -> dict[str, Any]:
    """Invert `to_table`, column by column; return fields of `ResultData`."""
    names, none = table.column_names, torch.zeros(table.num_rows, dtype=torch.int64)

    def numbers(name: str, whole: bool | None = False) -> Tensor:
        return _read_numbers(table[name].combine_chunks(), name, whole)

    def lists(name: str) -> list[Any]:
        return [row or () for row in table[name].to_pylist()]

    statuses = {status.value: status for status in Status}
    counts = [f"queries_{phase}" for phase in PHASES]
    return {
        "ids": tuple(table["id"].to_pylist()),
        "labels": numbers("label", whole=None),
        "status": tuple(map(statuses.__getitem__, table["status"].to_pylist())),
        "queries": torch.stack([numbers(name, whole=True) if name in names else none for name in counts], 1),
        "before": numbers("scores_before"),
        "after": numbers("scores_after"),
        "flip": {name: numbers(f"flip_{name}") for name in NAMES},
        "final": {name: numbers(f"final_{name}") for name in NAMES},
        "seeds": numbers("seed", whole=True),
        "improvements": tuple(
            tuple(zip(*pair, strict=True)) for pair in zip(lists("improved_at"), lists("improved_to"), strict=True)
        ),
        "r_peaks": tuple(map(tuple, lists("r_peaks"))),
    }


def _read_numbers(column: pa.Array, name: str, whole: bool | None) -> Tensor:
    """Read a column of floats or integers as (n,), or lists of equal length as (n, k); with None, as what is stored."""
    values, shape = column, list[int]([len(column)])
    if pa.types.is_list(column.type):
        offsets = np.asarray(np.from_dlpack(column.offsets), np.int64)  # `flatten` would import pandas
        values, shape = column.values.slice(offsets[0], offsets[-1] - offsets[0]), [len(column), -1]
        if len(set(np.diff(offsets).tolist())) > 1:
            raise ValueError(f"rows of {name} differ in length")
    if column.null_count or values.null_count:
        raise ValueError(f"a value of {name} is missing")
    if not (pa.types.is_integer(values.type) or (pa.types.is_floating(values.type) and not whole)):
        raise ValueError(f"values of {name} are not numbers")
    whole = pa.types.is_integer(values.type) if whole is None else whole
    return torch.from_numpy(np.array(np.from_dlpack(values), dtype=np.int64 if whole else np.float32).reshape(shape))
