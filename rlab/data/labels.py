"""Read labels from tables, lists, arrays and folder names, and convert them to class indices."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.data.fields import Labelled, Named
from rlab.data.files import refuse_two_levels
from rlab.errors import DataError, OptionError
from rlab.predictions.boxes import TARGET_COLUMNS, TargetBoxes
from rlab.predictions.kinds import WORDS, Prediction
from rlab.predictions.maps import encode_map
from rlab.storage.outside import is_text, read_lines, read_text, short

KEY_NAMES = ("file", "filename", "file_name", "name", "id", "image", "clip", "video", "path", "sample", "record")
LABEL_NAMES = ("label", "labels", "class", "class_id", "class_index", "target", "category", "y")
_NUMBER = re.compile(r"\s*[+-]?(nan|inf|infinity|(\d+\.?\d*|\.\d+)(e[+-]?\d+)?)\s*", re.ASCII | re.IGNORECASE)
MOST_LABEL = 2**31 - 1
_SHAPES: dict[Prediction, str] = {
    "boxes": "(n, m, 5): left, top, right, bottom and class (-1: no object)",
    "map": "(n, height, width) of class numbers",
    "numbers": "(n,) or (n, k)",
}
Array = NDArray[np.generic]
Names = str | Sequence[str] | None  # names by index, or a text file with one name per line
Encoded = tuple[Tensor, tuple[str, ...]]  # labels (b, ...), and class names by index, none if unknown


@dataclass(frozen=True)
class Table:
    """The cells of a text file with commas, tabs or semicolons; blank lines are left out."""

    path: Path
    names: tuple[str, ...]  # of the columns, in lower case; none if the first line is not a header
    rows: Sequence[Sequence[str]]  # all of one length
    lines: Sequence[int]  # the line of each row in the file

    @classmethod
    def read(cls, path: Path, column: str | None = None, count: int | None = None) -> Table:
        """Read a table with a column of that name, or a list of `count` rows; otherwise the first line tells what it is."""
        text = read_text(path)
        delimiter = max(",\t;", key=next((line for line in text.splitlines() if line.strip()), "").count)
        try:
            reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
            every = [(reader.line_num, tuple(cell.strip() for cell in row)) for row in reader]
        except csv.Error as error:
            raise DataError(f"cannot read {str(path)!r} ({error}): expected comma-separated lines") from error
        lines, rows = [line for line, row in every if any(row)], [row for _, row in every if any(row)]
        if not rows:
            raise DataError(f"{str(path)!r} is empty: expected one line per sample")
        for number, row in zip(lines, rows, strict=True):
            if len(row) != len(rows[0]):
                cells = f"line {number} of {path.name!r} has {len(row)} cells, but the first line has {len(rows[0])}"
                raise DataError(f"{cells}: expected the same number in every line")
        names, last = tuple(cell.lower() for cell in rows[0]), [row[-1] for row in rows]
        headed = len(rows) - 1 == count and not is_number(last[0]) and last[0] not in last[1:]
        if count is None:
            headed = (column is not None and column.lower() in names) or _is_header(names, rows[1:])
        return cls(path, names, rows[1:], lines[1:]) if headed else cls(path, (), rows, lines)

    def at(self, names: Sequence[str]) -> int | None:
        """The first column with one of these names."""
        return next((self.names.index(name) for name in names if name in self.names), None)

    def texts(self, column: int) -> list[str]:
        """The cells of a column of labels; refuse an empty one."""
        cells = [row[column] for row in self.rows]
        if "" in cells:
            at = f"line {self.lines[cells.index('')]} of {self.path.name!r}"
            raise DataError(f"expected a label in every line, got none in {at}: fill it in or remove the line")
        return cells


def _is_header(names: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first line holds a known name, is pandas' default, or has a text above a column of numbers."""
    default = ("", *map(str, range(len(names) - 1)))  # nothing above the index, then 0, 1, ...
    if any(name in KEY_NAMES + LABEL_NAMES for name in names) or (names == default and len(names) > 1):
        return True
    texts = [at for at, name in enumerate(names) if name and not is_number(name)]
    return bool(rows) and any(all(is_number(row[at]) for row in rows) for at in texts)


def read_table(path: str | Path, column: str | None = None) -> dict[str, str]:
    """Map sample names to label texts. Known names (file, id, ..., label, class, ...) or `column` identify the columns."""
    table = Table.read(Path(path), column)
    name, width = table.path.name, len(table.rows[0]) if table.rows else len(table.names)
    if width < 2:
        raise DataError(
            f"expected the columns file and label in {name!r}, got a single column: add the name of each file"
        )
    if column is not None and column.lower() not in table.names:
        raise OptionError(
            f"{name!r} has no column {column!r}: its columns are {', '.join(table.names or table.rows[0])}"
        )
    key = table.at(KEY_NAMES) or 0
    label = table.at(LABEL_NAMES if column is None else (column.lower(),))
    if label is None:
        label, *more = [i for i in range(width) if i != key]
        if more:
            columns = short(", ".join(table.names or table.rows[0]))
            raise DataError(f"{name!r} has several columns that could be the label ({columns}): pass label_column")
    known: dict[str, str] = {}
    for row, text in zip(table.rows, table.texts(label), strict=True):
        if known.setdefault(row[key], text) != text:
            both = f"{known[row[key]]!r} and {text!r}"
            raise DataError(f"{name!r} gives {row[key]!r} two labels, {both}: keep one of the rows")
    return known


def is_number(cell: str) -> bool:
    """Whether the text is a number; `float` also reads 1_2 and digits of other scripts, which are names here."""
    return _NUMBER.fullmatch(cell) is not None


def look_up(table: Mapping[str, str], ids: Sequence[str], where: str) -> list[str]:
    """The label of each sample, looked up by path, file name or name without suffix."""
    labels = {name: table[key] for name in ids for key in _spellings(name) if key in table}
    missing = [name for name in ids if name not in labels]
    if missing:
        count = f"{len(missing)} of {len(ids)} samples, first {missing[0]!r}"
        raise DataError(f"{where!r} has no row for {count}: add the rows or remove the files")
    return [labels[name] for name in ids]


def _spellings(name: str) -> tuple[str, ...]:
    """How a table may call a sample; the last one takes precedence."""
    path = PurePosixPath(name)
    return path.stem, str(path.with_suffix("")), path.name, name


def encode(labels: Sequence[str], classes: Names = None, others: Sequence[str] = ()) -> Encoded:
    """Convert label texts to class indices (b,) and class names.

    Integers are used as indices; names are sorted unless `classes` gives their order. `others` holds all labels of the
    source, so that a subset gets the same indices.
    """
    names = class_names(classes)
    every = sorted({*labels, *others})
    if "" in every and "" not in names:
        raise DataError("expected a label for every sample, got an empty one: fill it in or leave the sample out")
    if all(map(is_number, every)) and not set(every) <= set(names):
        wrong = [label for label in every if not (abs(float(label)) <= MOST_LABEL and float(label).is_integer())]
        if wrong:
            raise DataError(f"expected integers as labels, got {wrong[0]!r}: correct it, or pass the names as classes")
        return _in_range(torch.tensor([int(float(label)) for label in labels]), names), names
    names = names or tuple(every)
    unknown = sorted(set(labels) - set(names))
    if unknown:
        count = f"{len(unknown)} label names are not among the {len(names)} classes, first {unknown[0]!r}"
        raise DataError(f"{count}: add them to classes or correct the labels")
    index = {name: i for i, name in enumerate(names)}
    return torch.tensor([index[label] for label in labels]), names


def encode_texts(labels: Sequence[str], source: Named, where: str, others: Sequence[str] = ()) -> Encoded:
    """Texts from the file `where` as class indices (b,), or as numbers (b, 1) if these are the target."""
    if source.target != "numbers":
        return encode(labels, source.classes, others)
    wrong = [cell for cell in labels if not (is_number(cell) and math.isfinite(float(cell)))]
    if wrong:
        raise DataError(f"expected a finite number for every sample in {where!r}, got {wrong[0]!r}: correct the cell")
    return torch.tensor([[float(cell)] for cell in labels]), ()


def encode_array(labels: Array, classes: Names = None, several: bool | None = None) -> Encoded:
    """Convert an array of labels: numbers or names (n,), one-hot rows (n, k), or zeros and ones (n, k) for several labels.

    `several` keeps zeros and ones as they are (True) or refuses several labels (False); None decides by the rows.
    """
    labels = labels.reshape(len(labels)) if labels.shape[1:] == (1,) else labels
    names = class_names(classes)
    if labels.ndim == 2 and labels.size and labels.dtype.kind in "biuf" and np.isin(labels, (0, 1)).all():
        rows = torch.from_numpy(labels.astype(np.int64))
        others = int((rows.sum(1) != 1).sum())
        if others and several is False:
            count = f"{others} of {len(rows)} samples with several labels or none"
            raise DataError(f"expected one label per sample, got {count}: remove them, or leave out multilabel=False")
        return (rows if others or several else rows.argmax(1)), names
    if labels.ndim != 1:
        raise DataError(f"expected labels of shape (n,), or (n, k) of zeros and ones, got shape {labels.shape}")
    if labels.dtype.kind in "US":
        return encode(texts(labels, "labels"), classes)
    values = labels.astype(np.float64)
    wrong = ~(np.abs(values) <= MOST_LABEL) | (values != np.floor(values))  # also true for NaN
    if wrong.any():
        value = f"{labels[wrong][0]} ({labels.dtype})"
        raise DataError(f"expected integers or names as labels, got values like {value}")
    return _in_range(torch.from_numpy(labels.astype(np.int64)), names), names


def _in_range(labels: Tensor, names: tuple[str, ...]) -> Tensor:
    low, high = (int(labels.min()), int(labels.max())) if labels.numel() else (0, -1)
    if low < 0 or (names and high >= len(names)):
        allowed = f"labels in 0..{len(names) - 1}" if names else "labels of at least 0"
        raise DataError(f"expected {allowed}, got {low} to {high}: correct the labels or the classes")
    return labels


def encode_values(y: Array, target: Prediction | None, classes: Names = None, several: bool | None = None) -> Encoded:
    """Labels, or boxes (n, m, 5), maps (n, *size) or numbers (n,) or (n, k) as rows that a `Batch` holds, and class names."""
    if target is None:
        _refuse_other_target(y)
    if target in (None, "classes"):
        return encode_array(y, classes, several)
    boxes = y.ndim == 3 and y.shape[-1] == TARGET_COLUMNS
    fits = {"boxes": boxes, "map": y.ndim >= 3, "numbers": y.ndim in (1, 2)}
    if not fits[target] or y.dtype.kind not in "biuf" or not y.size:
        raise DataError(f"expected {WORDS[target]} as {_SHAPES[target]}, got {y.dtype} of shape {y.shape}")
    values = torch.from_numpy(np.ascontiguousarray(y, np.float64))
    if target == "boxes":
        rows = TargetBoxes(values[..., :4].float(), values[..., 4].long()).encode()
    elif target == "map":
        rows = encode_map(values.long(), tuple(y.shape[1:]))
    else:
        rows = values.float().reshape(len(y), -1)
    return rows, class_names(classes)


def _refuse_other_target(y: Array) -> None:
    """Refuse numbers that cannot be labels, and name the target that they fit."""
    if y.dtype.kind not in "biuf" or not y.size:
        return
    one = y.ndim == 1 or y.shape[1:] == (1,)
    odd = y[np.isfinite(y) & (y != np.floor(y))] if one else y[(y != 0) & (y != 1)]  # NaN is another mistake
    if y.ndim < 3 and not odd.size:
        return
    fits: Prediction = "numbers" if y.ndim < 3 else "boxes" if y.ndim == 3 and y.shape[2] == TARGET_COLUMNS else "map"
    got = f"{y.dtype} of shape {y.shape}" + (f" with values like {odd[0]:.4g}" if fits == "numbers" else "")
    advice = f"pass target='{fits}' (-D target={fits}) if y holds {WORDS[fits]}, or else correct it"
    raise DataError(f"expected class numbers (n,), or zeros and ones (n, k), got {got}: {advice}")


def texts(array: Array, what: str) -> list[str]:
    """An array (n,) of names or numbers as text."""
    if array.ndim != 1:
        raise DataError(f"expected {what} as one list, got an array of shape {array.shape}")
    values = [v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else str(v) for v in array.tolist()]
    if not all(map(is_text, values)):
        raise DataError(f"expected {what} as UTF-8 text, got something else: save them as str")
    return values


def class_names(classes: Names) -> tuple[str, ...]:
    """Unique class names by index, from a sequence or from a text file with one name per line."""
    if isinstance(classes, str):
        if "," in classes and not Path(classes).exists():
            raise DataError(f"expected a file of class names, got {short(classes)}: pass a list (-D 'classes=[A,B]')")
        classes = read_lines(Path(classes), "file of class names")
    names = tuple(classes or ())
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"the class {twice!r} is named twice: expected each class once")
    return names


def table_of(source: Labelled) -> Path:
    """The table of labels, by default labels.csv in the folder; it may be missing."""
    return Path(source.labels) if source.labels is not None else source.location / "labels.csv"


def labels_of(source: Labelled, names: Sequence[str]) -> Encoded:
    """Labels of files, from the table, or else from labels.csv in the folder, or else from the names of their folders.

    Folder names of digits are class indices; other names are sorted. The target 'numbers' needs a table.
    """
    table = table_of(source)
    if source.target == "numbers" or source.labels is not None or table.is_file():
        labels = read_table(table, source.label_column)
        return encode_texts(look_up(labels, names, table.name), source, table.name, tuple(labels.values()))
    loose = [name for name in names if "/" not in name]
    if loose:
        advice = "pass labels, a CSV with the columns file and label, or use one folder per class"
        raise DataError(f"{len(loose)} files in {source.path!r} have no label, first {loose[0]!r}: {advice}")
    if source.classes is None:
        refuse_two_levels(source.location, names)
    own = [name.split("/")[0] for name in names]
    indices = all(name.isascii() and name.isdecimal() for name in own)  # a folder 1e3 or 2.0 is a name
    return encode(own, source.classes or (None if indices else tuple(sorted(set(own)))))
