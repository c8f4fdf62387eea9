"""Load signals from text files, one sample per row (.csv, .tsv, .txt)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rlab.data.arrays import TABLE_OR_SIGNALS, as_source, read_list
from rlab.data.fields import Column, SignalOptions
from rlab.data.labels import KEY_NAMES, LABEL_NAMES, Table, encode_texts, is_number
from rlab.data.source import Source
from rlab.errors import DataError, OptionError
from rlab.predictions.kinds import Prediction


class CsvOptions(SignalOptions):
    holds: ClassVar[tuple[Prediction, ...]] = ("classes", "numbers")

    label_column: Column = None


def csv_signals(source: CsvOptions) -> Source:
    """Load signals (b, 1, t), one per row, with labels from a second file or from a column.

    `label_column` is a name in the header or a position ('0' is the first, '-1' the last). Without it, the label is the
    column that the header calls label, class, ...; or the first or last column, if only that one holds names or integers.
    A column that the header calls file, id, ... names the samples, as does a first column without a name, the index of pandas.
    """
    table = Table.read(source.location)
    if not table.rows:
        raise DataError(f"{table.path.name!r} has a header but no samples: expected one line per sample")
    named = table.at(KEY_NAMES)
    keys = [] if named is None else [named]
    keys += [0] if table.names and not table.names[0] else []  # the index of pandas
    if source.labels is not None:
        at, labels = None, read_list(source.labels, len(table.rows), source)
    else:
        at = _label_at(table, source.label_column, keys)
        labels = encode_texts(table.texts(at), source, table.path.name)
    key = next((i for i in keys if i != at), None)
    values = [i for i in range(len(table.rows[0])) if i not in (at, *keys)]
    heads = {re.sub(r"\d+", "", table.names[i]) for i in values} if table.names else set()
    if len(heads) > 1 and (source.kind, source.rate, source.bounds, source.unit) == (None,) * 4:
        raise DataError(f"{table.path.name!r}, whose columns have names of their own, {TABLE_OR_SIGNALS}")
    ids = None if key is None else np.array([row[key] for row in table.rows])
    return as_source(source.model_copy(update={"kind": "signal"}), _numbers(table, values), labels, ids)


def _numbers(table: Table, columns: Sequence[int]) -> NDArray[np.float32]:
    """The cells of these columns as (n, t); an error names the first cell that is not a number."""
    x = np.empty((len(table.rows), len(columns)), np.float32)
    for number, row in enumerate(table.rows):
        try:
            x[number] = [float(row[i]) for i in columns]
        except ValueError:
            bad = next(i for i in columns if not is_number(row[i]))
            cell = f"{row[bad]!r} in line {table.lines[number]}, column {bad + 1}"
            where = f"expected numbers in {table.path.name!r}, got {cell}"
            raise DataError(f"{where}: correct the cell or remove the line") from None
    return x


def _label_at(table: Table, column: str | None, keys: Sequence[int]) -> int:
    last = len(table.rows[0]) - 1
    if column is not None:
        try:
            named = table.at((column.lower(),))
            return range(last + 1)[int(column)] if named is None else named
        except (ValueError, IndexError):
            names = f"the names {', '.join(table.names)} or " if table.names else ""
            wanted = f"expected {names}a position in 0..{last}"
            raise OptionError(f"{table.path.name!r} has no column {column!r}: {wanted}") from None
    if (usual := table.at(LABEL_NAMES)) is not None:
        return usual
    cells = {at: [row[at] for row in table.rows] for at in {0, last}}
    likely = [at for at in cells if all(float(c).is_integer() if is_number(c) else c for c in cells[at])]
    if len(likely) != 1 or last == 0 or likely[0] in keys:
        advice = "pass label_column ('0' is the first, '-1' the last) or labels, a file with one label per line"
        raise DataError(f"cannot tell which column of {table.path.name!r} is the label: {advice}")
    return likely[0]
