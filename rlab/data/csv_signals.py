"""Load signals from text files, one sample per row (.csv, .tsv, .txt)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rlab.data.arrays import TABLE_OR_SIGNALS, as_source
from rlab.data.fields import DataFields
from rlab.data.labels import KEY_NAMES, LABEL_NAMES, encode_texts, is_number, read_cells, read_list, refuse_empty
from rlab.data.source import Source, reads
from rlab.errors import DataError, OptionError

Rows = Sequence[Sequence[str]]


@reads("target", "labels", "label_column", "classes", "bounds", "rate", "unit", "leads")
def csv_signals(source: DataFields) -> Source:
    """Load signals (b, 1, t), one per row, with labels from a second file or from a column.

    `label_column` is a name in the header or a position ('0' is the first, '-1' the last). Without it, the label is the
    column that the header calls label, class, ...; or the first or last column, if only that one holds names or integers.
    A column that the header calls file, id, ... names the samples, as does a first column without a name, the index of pandas.
    """
    file, labels = source.location, source.labels
    rows = read_cells(file)
    header = _header(rows)
    keys = _keys(header)
    rows = rows[1:] if header else rows
    if not rows:
        raise DataError(f"{file.name!r} has a header but no samples: expected one line per sample")
    if labels is not None:
        at, (y, classes) = None, read_list(labels, len(rows), source)
    else:
        at = _label_at(rows, header, source.label_column, file.name)
        texts = [row[at] for row in rows]
        refuse_empty(texts, file, int(bool(header)))
        y, classes = encode_texts(texts, source, file.name)
    key = next((i for i in keys if i != at), None)
    values = [i for i in range(len(rows[0])) if i not in (at, *keys)]
    heads = {re.sub(r"\d+", "", header[i]) for i in values} if header else set()
    if len(heads) > 1 and (source.kind, source.rate, source.bounds, source.unit) == (None,) * 4:
        raise DataError(f"{file.name!r}, whose columns have names of their own, {TABLE_OR_SIGNALS}")
    x = read_numbers(rows, values, file.name, first=2 if header else 1)
    ids = None if key is None else np.array([row[key] for row in rows])
    return as_source(source.model_copy(update={"kind": "signal"}), x, y, classes, ids)


def read_numbers(rows: Rows, columns: Sequence[int], name: str, first: int = 1) -> NDArray[np.float32]:
    """The cells of these columns as (n, t); an error names the first cell that is not a number."""
    x = np.empty((len(rows), len(columns)), np.float32)
    for number, row in enumerate(rows):
        try:
            x[number] = [float(row[i]) for i in columns]
        except ValueError:
            bad = next(i for i in columns if not is_number(row[i]))
            cell = f"{row[bad]!r} in line {first + number}, column {bad + 1}"
            raise DataError(f"expected numbers in {name!r}, got {cell}: correct the cell or remove the line") from None
    return x


def _header(rows: Rows) -> tuple[str, ...]:
    """The first row in lower case, if it holds a known name, is pandas' default, or has only texts above numbers; else ()."""
    names = tuple(cell.lower() for cell in rows[0])
    inner = range(1, len(names) - 1)
    default = ("", *map(str, range(len(names) - 1)))  # nothing above the index, then 0, 1, ...
    named = any(name in KEY_NAMES + LABEL_NAMES for name in names) or names == default
    texts_only = bool(inner) and all(names[i] and not is_number(names[i]) for i in inner)
    return names if named or (len(rows) > 1 and texts_only and any(is_number(rows[1][i]) for i in inner)) else ()


def _keys(header: Sequence[str]) -> list[int]:
    """The columns that name the samples, the best first: one with a usual name, and a first one without a name."""
    named = [header.index(name) for name in KEY_NAMES if name in header]
    return named[:1] + [i for i, name in enumerate(header[:1]) if not name]


def _label_at(rows: Rows, header: Sequence[str], column: str | None, name: str) -> int:
    last = len(rows[0]) - 1
    if column is not None:
        try:
            return header.index(column.lower()) if column.lower() in header else range(last + 1)[int(column)]
        except (ValueError, IndexError):
            names = f"the names {', '.join(header)} or " if header else ""
            raise OptionError(f"{name!r} has no column {column!r}: expected {names}a position in 0..{last}") from None
    named = [header.index(label) for label in LABEL_NAMES if label in header]
    if named:
        return named[0]
    likely = [
        at for at in (0, last) if all(float(row[at]).is_integer() if is_number(row[at]) else row[at] for row in rows)
    ]
    if len(likely) != 1 or last == 0 or likely[0] in _keys(header):
        advice = "pass label_column ('0' is the first, '-1' the last) or labels, a file with one label per line"
        raise DataError(f"cannot tell which column of {name!r} is the label: {advice}")
    return likely[0]
