"""Load arrays (.npz, .npy)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rlab.data.batch import KINDS, UNBOUNDED, Kind
from rlab.data.eight_bit import holds_bytes, to_float
from rlab.data.fields import UNIT, Axes, DataFields
from rlab.data.labels import Encoded, encode_values, read_list
from rlab.data.numpy_files import Array, npz_names, open_npy, open_npz, read_npz, texts
from rlab.data.source import Decoded, Source, reads
from rlab.errors import DataError

FEW, LONG = 4, 4  # more channels than that, and fewer values than that times the channels, may be a picture
COLOURS = (1, 3, 4)  # lengths of an axis of channels that may come last
TABLE_OR_SIGNALS = (
    "may hold rows of a table or signals of one channel: pass the range of a table's values (scale its columns to one range "
    "first), and for signals their rate in Hz or kind='signal' (-D bounds=[0,1], -D rate=100 or -D kind=signal; in Python "
    "rlab.load((x, y), bounds=(0, 1)))"
)
DARKEST, SOME = 32, 256  # the highest value of uint8 that is dark, and rows that are looked at
X_NAMES = ("x", "data", "images", "signals", "clips", "inputs", "arr_0")
Y_NAMES = ("y", "labels", "label", "targets", "arr_1")


@reads("target", "labels", "classes", "multilabel", "bounds", "rate", "unit", "leads", "layout", "split")
def npz(source: DataFields) -> Source:
    """Load x and y (or X and labels, x_test and y_test, ...) and, if present, ids, masks and classes from an .npz file."""
    path, stored = source.location, npz_names(source.location)
    x_name = find_array(stored, X_NAMES, source.split)
    if x_name is None:
        raise DataError(f"expected an array named x in {source.path!r}, got {', '.join(stored) or 'none'}: rename it")
    y_name = find_array(stored, Y_NAMES, source.split) if source.labels is None else None
    if y_name is None and source.labels is None:
        raise DataError(f"expected an array named y in {source.path!r}, got {', '.join(stored)}: add it or pass labels")
    x, masks = open_npz(path, x_name), open_npz(path, "masks") if "masks" in stored else None
    arrays = read_npz(path, (y_name, "ids", "classes"))
    if source.classes is None and "classes" in arrays:
        source = source.model_copy(update={"classes": tuple(texts(arrays["classes"], "classes"))})
    y, classes = _labels(source, x.shape, None if y_name is None else arrays[y_name])
    return as_source(source, x, y, classes, arrays.get("ids"), masks)


def _labels(source: DataFields, shape: tuple[int, ...], y: Array | None = None) -> Encoded:
    """Labels and class names from the array `y`, or else from the file `labels`."""
    if not shape:
        raise DataError(f"expected one row per sample in {source.path!r}, got a single value")
    if y is not None:
        return encode_values(_same(y, shape[0], "y"), source.target, source.classes, source.multilabel)
    if source.labels is not None:
        return read_list(source.labels, shape[0], source)
    name = source.location.name
    raise DataError(f"{name!r} holds no labels: pass labels, a .npy or .csv file with one label per sample")


@reads("target", "labels", "classes", "multilabel", "bounds", "rate", "unit", "leads", "layout")
def npy(source: DataFields) -> Source:
    """Load signals (n, t) or (n, c, t), images (n, c, h, w) or clips (n, c, t, h, w) from .npy, with labels from a second file."""
    x = open_npy(source.location)
    return as_source(source, x, *_labels(source, x.shape))


def _refuse_dark(x: Array) -> None:
    """Refuse uint8 values that may have another range than 0..255; of an array in a file, some rows are read."""
    count = x.shape[0]
    seen = x[range(0, count, max(1, count // SOME))] if isinstance(x, np.memmap) else x
    top = int(seen.max(initial=0))
    if 0 < top <= DARKEST:
        raise DataError(
            f"uint8 values from 0 to {top} may be dark pixels of 0..255 or have a range of their own: pass bounds=(0, 1) "
            f"(-D bounds=[0,1]) for dark pixels, or else divide them by {top}"
        )


def as_source(
    source: DataFields,
    x: Array,
    y: Tensor,
    classes: Sequence[str],
    ids: Array | None = None,
    masks: Array | None = None,
) -> Source:
    """Samples from an array: the axes reordered, uint8 values scaled to the bounds, the chosen rows kept."""
    count, kind = x.shape[0], settled_kind(source, x.shape)
    # a stand-in of the same shape that takes no memory
    shape = channels_first(np.broadcast_to(np.zeros((), x.dtype), x.shape), kind, source.layout).shape
    limits = source.bounds or (UNBOUNDED if len(shape) == 3 else UNIT)
    names = [str(i) for i in range(count)] if ids is None else texts(_same(ids, count, "ids"), "ids")
    rows = source.take.rows(y)
    if masks is not None:
        _same(masks, count, "masks")

    def read(wanted: Sequence[int]) -> Decoded:
        chosen = [rows[i] for i in wanted]
        values = to_float(channels_first(x[chosen], kind, source.layout), limits)
        more = {} if masks is None else {"masks": _masks(masks[chosen], shape[2:])}
        return Decoded(values, range(len(chosen)), more=more)

    eight_bit = holds_bytes(x.dtype, limits)
    if eight_bit and source.bounds is None:
        _refuse_dark(x)
    facts = source.facts(classes) | {"bounds": limits, "rate": source.rate, "unit": source.unit or ""}
    facts |= {"leads": source.leads or (), "eight_bit": eight_bit}
    return Source(read, shape[1:], y[rows], tuple(names[i] for i in rows), (source.location,), **facts)


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
        expected = kind or "signal, image or video"
        raise DataError(f"expected {expected} samples along the first axis, got shape {x.shape}")
    return x


def settled_kind(source: DataFields, shape: tuple[int, ...]) -> Kind | None:
    """The kind of an array: as given, signals if there is a rate, or None; refuse (n, d) that could be rows of a table."""
    if source.kind is None and source.rate is not None:
        if source.layout is None:
            refuse_turned(shape)
        return "signal"
    if len(shape) == 2 and (source.kind, source.bounds, source.unit, source.leads) == (None,) * 4:
        raise DataError(f"an array of shape {shape} {TABLE_OR_SIGNALS}")
    return source.kind


def refuse_turned(shape: tuple[int, ...]) -> None:
    """Refuse signals with more channels than values, which are (n, time, channels) as a rule."""
    if len(shape) == 3 and shape[1] > shape[2]:
        raise DataError(
            f"expected signals (n, channels, time), got shape {shape}, which has {shape[1]} channels of {shape[2]} values: "
            "swap the last two axes (x.swapaxes(1, 2)), or pass kind='signal' (-D kind=signal) if the shape is right"
        )


def find_array(stored: Sequence[str], names: Sequence[str], split: str | None = None) -> str | None:
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
