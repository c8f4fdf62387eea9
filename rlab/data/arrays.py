"""Arrays on disk (.npz, .npy) and signals in text (.csv, one sample a row) into a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.data.batch import KINDS, UNBOUNDED, Batch, Kind
from rlab.data.fields import UNIT, DataFields, check_room, reads
from rlab.data.labels import KEY_NAMES, LABEL_NAMES, encode, encode_array, is_number, read_cells, read_list
from rlab.data.numpy_files import Array, StoredArray, npz_names, open_npy, open_npz, read_npy, read_npz, texts
from rlab.data.source import Decoded, Source
from rlab.errors import InputError
from rlab.storage.config import Bounds

Rows = Sequence[Sequence[str]]
X_NAMES = ("x", "data", "images", "signals", "clips", "inputs", "arr_0")
Y_NAMES = ("y", "labels", "label", "targets", "arr_1")


@reads("kind", "labels", "classes", "bounds", "rate", "split")
def npz(source: DataFields) -> Batch:
    """x/y (X/labels, x_test/y_test, ...) and, where present, ids, masks and classes from one .npz."""
    x_name, y_name = _names(source)
    arrays = read_npz(source.location, (x_name, y_name, "ids", "masks", "classes"))
    x = arrays[x_name]
    return as_batch(source, x, *_labels(source, x.shape, arrays, y_name), arrays.get("ids"), arrays.get("masks"))


def npz_source(source: DataFields) -> Source:
    """The same, of which x and masks stay in the file."""
    x_name, y_name = _names(source)
    arrays = read_npz(source.location, (y_name, "ids", "classes"))
    x = open_npz(source.location, x_name)
    masks = open_npz(source.location, "masks") if "masks" in npz_names(source.location) else None
    return _source(source, x, *_labels(source, x.shape, arrays, y_name), arrays.get("ids"), masks)


def _names(source: DataFields) -> tuple[str, str | None]:
    """Of the arrays of inputs and, unless a file of its own holds them, of labels."""
    path, stored = source.path, npz_names(source.location)
    x_name = _find(stored, X_NAMES, source.split)
    if x_name is None:
        raise InputError(f"expected an array named x in {path!r}, got {', '.join(stored) or 'none'}: rename it")
    y_name = _find(stored, Y_NAMES, source.split) if source.labels is None else None
    if y_name is None and source.labels is None:
        raise InputError(f"expected an array named y in {path!r}, got {', '.join(stored)}: add it or pass labels")
    return x_name, y_name


def _labels(
    source: DataFields, shape: tuple[int, ...], arrays: Mapping[str, Array], y_name: str | None
) -> tuple[Tensor, tuple[str, ...]]:
    if not shape:
        raise InputError(f"expected the inputs in {source.path!r} to have one row a sample, got a single value")
    own = texts(arrays["classes"], "classes") if "classes" in arrays else None
    names = own if source.classes is None else source.classes
    if source.labels is not None:
        return read_list(source.labels, shape[0], names)
    assert y_name is not None
    return encode_array(_same(arrays[y_name], shape[0], "y"), names)


@reads("kind", "labels", "classes", "bounds", "rate")
def npy(source: DataFields) -> Batch:
    """Signals (n, t) or (n, c, t), images (n, c, h, w), clips (n, c, t, h, w) from .npy; labels from a second file."""
    x = read_npy(source.location)
    return as_batch(source, x, *_list(source, x.shape))


def npy_source(source: DataFields) -> Source:
    x = open_npy(source.location)
    return _source(source, x, *_list(source, x.shape))


def _list(source: DataFields, shape: tuple[int, ...]) -> tuple[Tensor, tuple[str, ...]]:
    if not shape:
        raise InputError(f"expected one row a sample in {source.path!r}, got a single value")
    if source.labels is None:
        name = source.location.name
        raise InputError(f"{name!r} holds no labels: pass labels, a .npy or .csv with one label a sample")
    return read_list(source.labels, shape[0], source.classes)


def as_batch(
    source: DataFields,
    x: Array,
    y: Tensor,
    classes: Sequence[str] = (),
    ids: Array | None = None,
    masks: Array | None = None,
) -> Batch:
    """Any array of samples -> a batch: axes in order, uint8 pictures spread over the bounds, the chosen rows only."""
    shaped, limits, names, rows = _shaped(source, x, ids)
    check_room(len(rows), shaped.shape[1:])
    return Batch(
        x=to_float(shaped[rows], limits),
        y=y[rows],
        ids=tuple(names[i] for i in rows),
        bounds=limits,
        classes=tuple(classes),
        masks=None if masks is None else _masks(_same(masks, len(x), "masks")[rows], shaped.shape[2:]),
        rate=source.rate,
    )


def _source(
    source: DataFields,
    x: StoredArray,
    y: Tensor,
    classes: Sequence[str] = (),
    ids: Array | None = None,
    masks: StoredArray | None = None,
) -> Source:
    """The same of an array on disk."""
    like = np.broadcast_to(np.zeros((), x.dtype), x.shape)  # as large in its shape alone
    shaped, limits, names, rows = _shaped(source, like, ids)
    if masks is not None:
        _same(np.broadcast_to(0, masks.shape), len(like), "masks")

    def read(wanted: Sequence[int]) -> Decoded:
        chosen = [rows[i] for i in wanted]
        values = to_float(channels_first(x[chosen], source.kind), limits)
        more = {} if masks is None else {"masks": _masks(masks[chosen], shaped.shape[2:])}
        return Decoded(values, range(len(chosen)), more=more)

    return Source(
        read=read,
        sample_shape=shaped.shape[1:],
        y=y[rows],
        ids=tuple(names[i] for i in rows),
        files=(source.location,),
        bounds=limits,
        classes=tuple(classes),
        rate=source.rate,
    )


def _shaped(source: DataFields, x: Array, ids: Array | None) -> tuple[Array, Bounds, list[str], list[int]]:
    """The array (n, c, *size), its bounds, all ids, and the rows to use."""
    shaped = channels_first(x, source.kind)
    limits = source.bounds or (UNBOUNDED if shaped.ndim == 3 else UNIT)
    names = [str(i) for i in range(len(x))] if ids is None else texts(_same(ids, len(x), "ids"), "ids")
    return shaped, limits, names, source.take.order(len(shaped))


def channels_first(x: Array, kind: Kind | None = None) -> Array:
    """(n, ...) in any usual order -> (n, c, *size).

    Two axes are one-channel signals. Three are signals (n, c, t), or grey images (n, h, w) where the values are uint8
    or `kind` says so. With four or five the channels are taken to be last where the last axis is 1, 3 or 4 long and the
    second is not; then they are moved to the front.
    """
    wanted = None if kind is None else KINDS.index(kind) + 3
    grey = x.dtype == np.uint8 and x.ndim == 3 if wanted is None else x.ndim == wanted - 1
    if x.ndim == 2 or grey:
        x = x[:, None]
    elif x.ndim in (4, 5) and x.shape[-1] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        x = np.moveaxis(x, -1, 1)
    if x.ndim not in (3, 4, 5) or wanted not in (None, x.ndim):
        what = kind or "signal, image or video"
        raise InputError(f"expected {what} samples along the first axis, got shape {x.shape}")
    return x


def to_float(x: Array, bounds: Bounds) -> Tensor:
    """uint8 0..255 is spread over finite bounds, so (0, 1) divides by 255; other numbers are rounded to float32."""
    if x.dtype.kind not in "iuf":
        raise InputError(f"expected numbers as inputs, got {x.dtype}: convert them to float32")
    with np.errstate(over="ignore"):  # what is beyond float32 becomes infinite, and is refused as such
        values = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    if x.dtype != np.uint8 or not math.isfinite(bounds[1] - bounds[0]) or bounds == (0.0, 255.0):
        return values
    scaled = values.div_(255)
    return scaled if bounds == (0.0, 1.0) else scaled.mul_(bounds[1] - bounds[0]).add_(bounds[0]).clamp_(*bounds)


def _find(stored: Sequence[str], names: Sequence[str], split: str | None) -> str | None:
    """The first array of one of these names, in any case; x_test goes before x_train unless `split` tells."""
    lower = {name.lower(): name for name in stored}
    ends = [f"_{split}"] if split else ["", "_test", "_train"]
    return next((lower[name + end] for end in ends for name in names if name + end in lower), None)


def _same(array: Array, count: int, name: str) -> Array:
    if not array.ndim or len(array) != count:
        raise InputError(f"the array {name} has shape {array.shape} for {count} inputs: expected one row a sample")
    return array


def _masks(masks: Array, size: tuple[int, ...]) -> Tensor:
    """(n, *size), or (n, 1, *size) -> bool (n, *size)."""
    shaped = masks[:, 0] if masks.ndim == len(size) + 2 and masks.shape[1] == 1 else masks
    if shaped.shape[1:] != size or masks.dtype.kind not in "biuf":
        wanted = f"of shape (n, {', '.join(map(str, size))}), of numbers"
        raise InputError(f"expected masks {wanted}, got {masks.dtype} of {masks.shape}")
    return torch.from_numpy(shaped != 0)


@reads("labels", "label_column", "classes", "bounds", "rate")
def csv_signals(source: DataFields) -> Batch:
    """Signals (b, 1, t), one a row. Labels come from a second file, else from a column.

    `label_column` is a header's name or a position ('0' first, '-1' last). Without it the column is one a header calls
    label, class, ..., else whichever of the first and the last holds names or whole numbers while the other does not.
    """
    file, labels = source.location, source.labels
    rows = read_cells(file)
    header = _header(rows)
    rows = rows[1:] if header else rows
    if not rows:
        raise InputError(f"{file.name!r} has a header and no samples: expected one line a sample")
    at = None if labels is not None else _label_at(rows, header, source.label_column, file.name)
    key = next((header.index(name) for name in KEY_NAMES if name in header), None)
    values = [i for i in range(len(rows[0])) if i not in (at, key)]
    x = read_numbers(rows, values, file.name, first=2 if header else 1)
    if labels is not None:
        encoded = read_list(labels, len(x), source.classes)
    else:
        assert at is not None
        encoded = encode([row[at] for row in rows], source.classes)
    ids = None if key is None else np.array([row[key] for row in rows])
    return as_batch(source.model_copy(update={"kind": "signal"}), x, *encoded, ids=ids)


def read_numbers(rows: Rows, columns: Sequence[int], name: str, first: int = 1) -> NDArray[np.float32]:
    """The cells of these columns as (n, t); the first that is not a number is named with its line."""
    x = np.empty((len(rows), len(columns)), np.float32)
    for number, row in enumerate(rows):
        try:
            x[number] = [float(row[i]) for i in columns]
        except ValueError:
            bad = next(i for i in columns if not is_number(row[i]))
            cell = f"{row[bad]!r} in line {first + number}, column {bad + 1}"
            raise InputError(f"expected numbers in {name!r}, got {cell}: mend the cell or leave the line out") from None
    return x


def _header(rows: Rows) -> tuple[str, ...]:
    """The first row in lower case where it holds a known name, or nothing but texts in its inner cells, above numbers."""
    names = tuple(cell.lower() for cell in rows[0])
    inner = range(1, len(names) - 1)
    named = any(name in KEY_NAMES + LABEL_NAMES for name in names)
    texts_only = bool(inner) and all(names[i] and not is_number(names[i]) for i in inner)
    return names if named or (len(rows) > 1 and texts_only and any(is_number(rows[1][i]) for i in inner)) else ()


def _label_at(rows: Rows, header: Sequence[str], column: str | None, name: str) -> int:
    if column is not None:
        return _named(len(rows[0]), header, column, name)
    named = [header.index(label) for label in LABEL_NAMES if label in header]
    if named:
        return named[0]
    last = len(rows[0]) - 1
    likely = [at for at in (0, last) if all(_is_label(row[at]) for row in rows)]
    if len(likely) != 1 or last == 0:
        advice = "pass label_column ('0' for the first, '-1' for the last) or labels, a file with one label a line"
        raise InputError(f"cannot tell which column of {name!r} is the label: {advice}")
    return likely[0]


def _named(width: int, header: Sequence[str], column: str, name: str) -> int:
    if column.lower() in header:
        return header.index(column.lower())
    try:
        return range(width)[int(column)]
    except (ValueError, IndexError):
        names = f"the names {', '.join(header)} or " if header else ""
        raise InputError(f"{name!r} has no column {column!r}: expected {names}a position in 0..{width - 1}") from None


def _is_label(cell: str) -> bool:
    """A whole number, or a name; an empty cell is neither."""
    return float(cell).is_integer() if is_number(cell) else bool(cell)
