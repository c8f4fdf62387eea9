"""Load arrays (.npz, .npy), which are never unpickled, and signals in text files, one sample per row (.csv, .tsv, .txt)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from rlab.data.batch import KINDS, UNBOUNDED, Kind
from rlab.data.eight_bit import holds_bytes, to_float
from rlab.data.fields import UNIT, Column, Several, SignalOptions, Split, free_bytes
from rlab.data.labels import (
    KEY_NAMES,
    LABEL_NAMES,
    Array,
    Encoded,
    Table,
    encode_texts,
    encode_values,
    is_number,
    texts,
)
from rlab.data.source import Decoded, Source
from rlab.errors import DataError, InputError, OptionError
from rlab.predictions.kinds import Prediction
from rlab.storage.outside import regular

FEW, LONG = 4, 4  # more channels than that, and fewer values than that times the channels, may be a picture
COLOURS = (1, 3, 4)  # lengths of an axis of channels that may come last
TABLE_OR_SIGNALS = (
    "may hold rows of a table or signals of one channel: pass the range of a table's values (scale its columns to one range "
    "first), and for signals their rate in Hz or kind='signal' (-D bounds=[0,1], -D rate=100 or -D kind=signal; in Python "
    "rlab.load((x, y), bounds=(0, 1)))"
)
DARKEST, SOME = 32, 256  # the highest value of uint8 that is dark, and how many rows of a large array are looked at
X_NAMES = ("x", "data", "images", "signals", "clips", "inputs", "arr_0")
Y_NAMES = ("y", "labels", "label", "targets", "arr_1")
Axes = Literal["channels_first", "channels_last"]


class ArrayOptions(SignalOptions):
    multilabel: Several = None
    layout: Axes | None = Field(
        None, description="arrays: channels_first or channels_last (default: by the shape, if it can be only one)"
    )
    split: Split = None


@contextmanager
def stored_arrays(path: Path) -> Iterator[Mapping[str, Array]]:
    """The arrays of an .npz file by name, or that of an .npy file as x, mapped into memory; each is read when it is used."""
    ending = path.suffix.lower()
    regular(path)
    try:
        if ending == ".npy":
            yield {"x": np.load(path, mmap_mode="r", allow_pickle=False)}
            return
        with np.load(path, allow_pickle=False) as stored:
            need, free = max((each.file_size for each in stored.zip.infolist()), default=0), free_bytes()
            if free is not None and need > free:
                raise DataError(f"{str(path)!r} needs {need / 1e9:.1f} GB of memory: unzip it and pass its x.npy")
            yield stored
    except InputError:
        raise
    except Exception as error:  # numpy and zipfile raise many kinds of errors on broken, encrypted and unknown files
        reason = str(error) or type(error).__name__
        raise DataError(f"cannot read {str(path)!r} as {ending} ({reason}): expected plain arrays") from error


def arrays(source: ArrayOptions) -> Source:
    """Load x and y (or X and labels, x_test and y_test, ...) and, if present, ids, masks and classes from an .npz file.

    An .npy file holds only x: signals (n, t) or (n, c, t), images (n, c, h, w) or clips (n, c, t, h, w).
    """
    with stored_arrays(source.location) as stored:
        names = ", ".join(stored) or "none"
        x_name = find_array(stored, X_NAMES, source.split)
        if x_name is None:
            raise DataError(f"expected an array named x in {source.path!r}, got {names}: rename it")
        x, y_name = stored[x_name], find_array(stored, Y_NAMES, source.split)
        if source.classes is None and "classes" in stored:
            source = source.model_copy(update={"classes": tuple(texts(stored["classes"], "classes"))})
        if not x.ndim:
            raise DataError(f"expected one row per sample in {source.path!r}, got a single value")
        if source.labels is not None:
            labels = read_list(source.labels, len(x), source, source.multilabel)
        elif y_name is not None:
            y = _same(stored[y_name], len(x), "y")
            labels = encode_values(y, source.target, source.classes, source.multilabel)
        else:
            raise DataError(f"expected an array named y in {source.path!r}, got {names}: add it or pass labels")
        more = {name: stored[name] for name in ("ids", "masks") if name in stored}
    return as_source(source, x, labels, layout=source.layout, **more)


def read_list(file: str, count: int, source: SignalOptions, several: bool | None = None) -> Encoded:
    """Read one label for each of `count` samples, in order, from an .npy file or from the last cell of each line of text."""
    path = Path(file)
    if path.suffix == ".npy":
        with stored_arrays(path) as stored:
            labels = np.array(stored["x"])
    else:
        labels = np.array(Table.read(path, count=count).texts(-1))
    rows = len(labels) if labels.ndim else 0
    if rows != count:
        raise DataError(f"{path.name!r} holds {rows} labels for {count} samples: expected one label per sample")
    if labels.dtype.kind in "US" and source.target in (None, "classes", "numbers"):
        return encode_texts(texts(labels, "labels"), source, path.name)
    return encode_values(labels, source.target, source.classes, several)


def rows_of(x: Array, rows: slice | Sequence[int]) -> Array:
    """Rows of an array; one in a file is mapped anew each time, so that the pages that were read do not stay in memory."""
    if isinstance(x, np.memmap):
        x = np.memmap(str(x.filename), x.dtype, "r", x.offset, x.shape, "F" if x.flags.fnc else "C")
    return x[rows]


def as_source(
    source: SignalOptions,
    x: Array,
    labels: Encoded,
    ids: Array | None = None,
    masks: Array | None = None,
    layout: Axes | None = None,
) -> Source:
    """Samples from an array: the axes reordered, uint8 values scaled to the bounds, the chosen rows kept."""
    y, count, kind = labels[0], x.shape[0], settled_kind(source, x.shape, layout)
    shape = channels_first(np.broadcast_to(np.zeros((), x.dtype), x.shape), kind, layout).shape  # takes no memory
    limits = source.bounds or (UNBOUNDED if len(shape) == 3 else UNIT)
    names = list(map(str, range(count))) if ids is None else texts(_same(ids, count, "ids"), "ids")
    known = None if masks is None else _masks(_same(masks, count, "masks"), shape[2:])
    rows = source.take.rows(y)

    def read(wanted: Sequence[int]) -> Decoded:
        chosen = [rows[i] for i in wanted]
        values = to_float(channels_first(rows_of(x, chosen), kind, layout), limits)
        return Decoded(values, range(len(chosen)), more={} if known is None else {"masks": known[chosen]})

    if (eight_bit := holds_bytes(x.dtype, limits)) and source.bounds is None:
        step = 1 + count // SOME if x.nbytes > 2**26 else 1
        top = int(rows_of(x, slice(None, None, step)).max(initial=0))
        if 0 < top <= DARKEST:
            raise DataError(
                f"uint8 values from 0 to {top} may be dark pixels of 0..255 or have a range of their own: pass bounds=(0, 1) "
                f"(-D bounds=[0,1]) for dark pixels, or else divide them by {top}"
            )
    facts = source.facts(labels[1]) | {"bounds": limits, "rate": source.rate, "unit": source.unit or ""}
    facts |= {"leads": source.leads or (), "eight_bit": eight_bit}
    chosen = tuple(names[i] for i in rows)
    return Source(read, shape[1:], y[rows], chosen, [(source.location,)] * len(rows), **facts)


def channels_first(x: Array, kind: Kind | None = None, layout: Axes | None = None) -> Array:
    """(n, ...) in any common order -> (n, c, *size).

    Two axes are signals of one channel. Three axes are signals (n, c, t), or grey images (n, h, w) if the values are
    uint8 or `kind` is image; an array that could be either is refused without `kind`. With four or five axes, channels come
    last if the last axis has length 1, 3 or 4 and the second has not; they are then moved to the front. If both have, the array
    is refused without `layout`, unless its last two axes are equal, as the sides of small images are.
    """
    wanted = None if kind is None else KINDS.index(kind) + 3
    grey = x.dtype == np.uint8 and x.ndim == 3 and layout is None if wanted is None else x.ndim == wanted - 1
    if wanted is None and layout is None and not grey and x.ndim == 3:
        _, channels, length = x.shape  # signals have few channels and many values, images similar sides
        if channels > FEW and length < LONG * channels:
            raise DataError(
                f"an array of shape {x.shape} may hold images of {channels} x {length} pixels or signals of {channels} "
                f"channels with {length} values: pass kind='image' or kind='signal' (-D kind=image; in Python "
                "rlab.load((x, y), kind='image'))"
            )
    if x.ndim == 2 or grey:
        x = x[:, None]
    elif layout is not None:
        x = np.moveaxis(x, -1, 1) if layout == "channels_last" else x
    elif x.ndim in (4, 5) and x.shape[-1] in COLOURS:
        if x.shape[1] not in COLOURS:
            x = np.moveaxis(x, -1, 1)
        elif x.shape[-2] != x.shape[-1]:
            raise DataError(
                f"an array of shape {x.shape} may hold {x.shape[1]} channels first or {x.shape[-1]} channels last: pass "
                "layout='channels_first' or layout='channels_last' (-D layout=channels_last; in Python "
                "rlab.load((x, y), layout='channels_last'))"
            )
    if x.ndim not in (3, 4, 5) or wanted not in (None, x.ndim):
        raise DataError(
            f"expected {kind or 'signal, image or video'} samples along the first axis, got shape {x.shape}"
        )
    return x


def settled_kind(source: SignalOptions, shape: tuple[int, ...], layout: Axes | None = None) -> Kind | None:
    """The kind of an array: as given, signals if there is a rate, or None; refuse (n, d) that could be rows of a table."""
    if source.kind is None and source.rate is not None:
        if layout is None and len(shape) == 3 and shape[1] > shape[2]:
            raise DataError(
                f"expected signals (n, channels, time), got shape {shape}, which has {shape[1]} channels of {shape[2]} values: "
                "swap the last two axes (x.swapaxes(1, 2)), or pass kind='signal' (-D kind=signal) if the shape is right"
            )
        return "signal"
    if len(shape) == 2 and (source.kind, source.bounds, source.unit, source.leads) == (None,) * 4:
        raise DataError(f"an array of shape {shape} {TABLE_OR_SIGNALS}")
    return source.kind


def find_array(stored: Iterable[str], names: Sequence[str], split: str | None = None) -> str | None:
    """The first array with one of these names, in any case; without `split`, x_test comes before x_train."""
    lower = {name.lower(): name for name in stored}
    ends = [f"_{split}"] if split else ["", "_test", "_train"]
    return next((lower[name + end] for end in ends for name in names if name + end in lower), None)


def _same(array: Array, count: int, name: str) -> Array:
    if array.shape[:1] != (count,):
        raise DataError(f"the array {name} has shape {array.shape} for {count} inputs: expected one row per sample")
    return array


def _masks(masks: Array, size: tuple[int, ...]) -> Tensor:
    """(n, *size) or (n, 1, *size) -> bool (n, *size)."""
    shaped = masks[:, 0] if masks.ndim == len(size) + 2 and masks.shape[1] == 1 else masks
    if shaped.shape[1:] != size or masks.dtype.kind not in "biuf":
        expected = f"numeric masks of shape (n, {', '.join(map(str, size))})"
        raise DataError(f"expected {expected}, got {masks.dtype} of shape {masks.shape}")
    return torch.from_numpy(shaped != 0)


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
