"""Labels as people keep them: a table of names, one label a line, an array; as class indices in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.data.tables import read_cells, read_npy
from rlab.errors import InputError

KEY_NAMES = ("file", "filename", "file_name", "name", "id", "image", "clip", "video", "path", "sample", "record")
LABEL_NAMES = ("label", "labels", "class", "class_id", "class_index", "target", "category", "y")

Classes = str | Sequence[str] | None  # names by index, or a text file with one name a line


def read_table(path: str | Path, column: str | None = None) -> dict[str, str]:
    """Sample name -> label text. A header is known by its names (file, id, ..., label, class, ...) or by `column`."""
    path = Path(path)
    rows = read_cells(path)
    key, label, header = _columns(rows, path, column)
    return {row[key]: row[label] for row in rows[header:]}


def _columns(rows: Sequence[Sequence[str]], path: Path, column: str | None) -> tuple[int, int, int]:
    """Which column names the sample, which is the label, and how many header lines there are (0 or 1)."""
    names = [cell.lower() for cell in rows[0]]
    if len(names) < 2:
        raise InputError(f"expected the columns file and label in {path.name!r}, got a single column")
    if column is not None and column.lower() not in names:
        raise InputError(f"{path.name!r} has no column {column!r}: its columns are {', '.join(rows[0])}")
    header = column is not None or any(name in KEY_NAMES + LABEL_NAMES for name in names)
    key = next((names.index(name) for name in KEY_NAMES if name in names), 0)
    if column is not None:
        return key, names.index(column.lower()), 1
    known = [names.index(name) for name in LABEL_NAMES if name in names]
    others = [i for i in range(len(names)) if i != key]
    if not known and len(others) > 1:
        raise InputError(
            f"{path.name!r} has several columns that could be the label ({', '.join(rows[0])}): pass label_column"
        )
    return key, (known or others)[0], int(header)


def look_up(table: Mapping[str, str], ids: Sequence[str], where: str) -> list[str]:
    """The label of every sample, found by its path, its file name or its name without ending."""
    found = [next((table[name] for name in _spellings(one) if name in table), None) for one in ids]
    missing = [one for one, label in zip(ids, found, strict=True) if label is None]
    if missing:
        raise InputError(
            f"{where!r} has no row for {len(missing)} of {len(ids)} samples, first {missing[0]!r}: "
            f"add the rows or take the files away"
        )
    return [label for label in found if label is not None]


def _spellings(name: str) -> tuple[str, ...]:
    path = PurePosixPath(name)
    return name, path.name, str(path.with_suffix("")), path.stem


def encode(labels: Sequence[str], classes: Classes = None, known: Sequence[str] = ()) -> tuple[Tensor, tuple[str, ...]]:
    """Label texts -> (indices (b,), class names). Whole numbers are indices as they stand; names are sorted unless
    `classes` gives their order. `known` lists every label of the source, so that a subset gets the same indices."""
    names = class_names(classes)
    every = sorted({*labels, *known})
    numbers = _whole_numbers(every)
    if numbers is not None and not set(every) <= set(names):
        return _in_range(torch.tensor([numbers[label] for label in labels]), names), names
    names = names or tuple(every)
    unknown = sorted(set(labels) - set(names))
    if unknown:
        raise InputError(
            f"{len(unknown)} label names are not among the {len(names)} classes, first {unknown[0]!r}: "
            f"add them to classes or mend the labels"
        )
    index = {name: i for i, name in enumerate(names)}
    return torch.tensor([index[label] for label in labels]), names


def encode_array(labels: NDArray[np.generic], classes: Classes = None) -> tuple[Tensor, tuple[str, ...]]:
    """Labels as an array: numbers or names (n,), one-hot rows (n, k), or zeros and ones (n, k) for many labels."""
    labels = labels.reshape(len(labels)) if labels.shape[1:] == (1,) else labels
    names = class_names(classes)
    if labels.ndim == 2 and np.isin(labels, (0, 1)).all():
        rows = torch.from_numpy(labels.astype(np.int64))
        return (rows.argmax(1) if bool((rows.sum(1) == 1).all()) else rows), names
    if labels.ndim != 1:
        raise InputError(f"expected labels of shape (n,), or (n, k) of zeros and ones, got shape {labels.shape}")
    if labels.dtype.kind in "US":
        return encode([str(label) for label in labels.astype(str)], classes)
    if labels.dtype.kind not in "iufb" or not (labels == np.floor(labels.astype(np.float64))).all():
        raise InputError(
            f"expected whole numbers or names as labels, got values like {labels.flat[0]!r} ({labels.dtype})"
        )
    return _in_range(torch.from_numpy(labels.astype(np.int64)), names), names


def read_list(path: str | Path, count: int, classes: Classes = None) -> tuple[Tensor, tuple[str, ...]]:
    """One label for each of `count` samples, in their order, from .npy or from the last cell of each line of text."""
    path = Path(path)
    if path.suffix == ".npy":
        labels = read_npy(path)
    else:
        cells = [row[-1] for row in read_cells(path)]
        labels = np.array(cells[1:] if cells[0].lower() in LABEL_NAMES or len(cells) == count + 1 else cells)
    if len(labels) != count:
        raise InputError(f"{path.name!r} holds {len(labels)} labels for {count} samples: expected as many of each")
    return encode(list(labels), classes) if labels.dtype.kind in "US" else encode_array(labels, classes)


def class_names(classes: Classes) -> tuple[str, ...]:
    """Names by index, from a sequence or from a text file with one name a line."""
    if not isinstance(classes, str):
        return tuple(classes or ())
    try:
        return tuple(line.strip() for line in Path(classes).read_text(encoding="utf-8").splitlines() if line.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the class names from {classes!r} ({error}): expected one name a line") from error


def _whole_numbers(labels: Sequence[str]) -> dict[str, int] | None:
    """The labels as whole numbers, where every one of them is one; '3', '03' and '3.0' all are."""
    try:
        values = {label: float(label) for label in labels}
    except ValueError:
        return None
    return (
        {label: int(value) for label, value in values.items()} if all(v.is_integer() for v in values.values()) else None
    )


def _in_range(labels: Tensor, names: tuple[str, ...]) -> Tensor:
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or (names and high >= len(names)):
        most = f"0..{len(names) - 1}" if names else "0 and up"
        raise InputError(f"expected labels in {most}, got {low} to {high}: mend the labels or the classes")
    return labels
