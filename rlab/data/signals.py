"""Signals in text: a CSV with one sample a row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rlab.data.arrays import Bounds, as_batch
from rlab.data.batch import Batch
from rlab.data.labels import KEY_NAMES, LABEL_NAMES, Classes, encode, read_list
from rlab.data.tables import read_cells
from rlab.data.take import Take
from rlab.errors import InputError

Rows = Sequence[Sequence[str]]


def csv_signals(
    path: str | Path,
    *,
    labels: str | None = None,
    label_column: str | None = None,
    classes: Classes = None,
    bounds: Bounds | None = None,
    rate: float | None = None,
    take: Take | None = None,
) -> Batch:
    """Signals (b, 1, t), one a row. Labels come from a second file, else from a column.

    `label_column` is a header's name or a position ('0' first, '-1' last). Without it the column is one a header calls
    label, class, ..., else whichever of the first and the last holds names or whole numbers while the other does not.
    """
    file = Path(path)
    rows = read_cells(file)
    header = _header(rows)
    rows = rows[1:] if header else rows
    if not rows:
        raise InputError(f"{file.name!r} has a header and no samples: expected one line a sample")
    at = None if labels is not None else _label_at(rows, header, label_column, file.name)
    key = next((header.index(name) for name in KEY_NAMES if name in header), None)
    values = [i for i in range(len(rows[0])) if i not in (at, key)]
    x = read_numbers(rows, values, file.name, first=2 if header else 1)
    found = read_list(labels, len(x), classes) if labels is not None else encode(_texts(rows, at), classes)
    ids = None if key is None else np.array([row[key] for row in rows])
    return as_batch(x, *found, ids=ids, kind="signal", bounds=bounds, rate=rate, take=take)


def read_numbers(rows: Rows, columns: Sequence[int], name: str, first: int = 1) -> NDArray[np.float32]:
    """The cells of these columns as (n, t); the first that is not a number is named with its line."""
    x = np.empty((len(rows), len(columns)), np.float32)
    for number, row in enumerate(rows):
        try:
            x[number] = [float(row[i]) for i in columns]
        except ValueError:
            bad = next(i for i in columns if not _is_number(row[i]))
            raise InputError(
                f"expected numbers in {name!r}, got {row[bad]!r} in line {first + number}, column {bad + 1}: "
                f"mend the cell or leave the line out"
            ) from None
    return x


def _header(rows: Rows) -> tuple[str, ...]:
    """The first row in lower case where it holds a known name, or text in an inner cell above a number."""
    names = tuple(cell.lower() for cell in rows[0])
    known = any(name in KEY_NAMES + LABEL_NAMES for name in names)
    texts = [i for i, cell in enumerate(names[1:-1], 1) if not _is_number(cell)]
    return names if known or (len(rows) > 1 and any(_is_number(rows[1][i]) for i in texts)) else ()


def _label_at(rows: Rows, header: Sequence[str], column: str | None, name: str) -> int:
    if column is not None:
        return _named(len(rows[0]), header, column, name)
    known = [header.index(label) for label in LABEL_NAMES if label in header]
    if known:
        return known[0]
    last = len(rows[0]) - 1
    likely = [at for at in (0, last) if all(_is_label(row[at]) for row in rows)]
    if len(likely) != 1 or last == 0:
        raise InputError(
            f"cannot tell which column of {name!r} is the label: pass label_column "
            f"('0' for the first, '-1' for the last) or labels, a second file with one label a line"
        )
    return likely[0]


def _named(width: int, header: Sequence[str], column: str, name: str) -> int:
    if column.lower() in header:
        return header.index(column.lower())
    try:
        at = range(width)[int(column)]
    except (ValueError, IndexError):
        names = f"the names {', '.join(header)} or " if header else ""
        raise InputError(f"{name!r} has no column {column!r}: expected {names}a position in 0..{width - 1}") from None
    return at


def _texts(rows: Rows, at: int | None) -> list[str]:
    assert at is not None
    return [row[at] for row in rows]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _is_label(cell: str) -> bool:
    """A whole number, or a name; an empty cell is neither."""
    return float(cell).is_integer() if _is_number(cell) else bool(cell)
