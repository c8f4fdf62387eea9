"""Arrays on disk (.npz, .npy) into a batch."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.data.batch import KINDS, UNBOUNDED, Batch, Kind
from rlab.data.labels import Classes, encode_array, read_list
from rlab.data.tables import read_npy
from rlab.data.take import Take, check_room
from rlab.errors import InputError

Array = NDArray[np.generic]
Bounds = tuple[float, float]
X_NAMES = ("x", "data", "images", "signals", "clips", "inputs", "arr_0")
Y_NAMES = ("y", "labels", "label", "targets", "arr_1")


def npz(
    path: str | Path,
    *,
    labels: str | None = None,
    classes: Classes = None,
    kind: Kind | None = None,
    bounds: Bounds | None = None,
    rate: float | None = None,
    split: str | None = None,
    take: Take | None = None,
) -> Batch:
    """x/y (X/labels, x_test/y_test, ...) and, where present, ids, masks and classes from one .npz."""
    arrays = read_npz(Path(path))
    x = _find(arrays, X_NAMES, split)
    if x is None:
        raise InputError(f"expected an array named x in {str(path)!r}, got {', '.join(arrays) or 'none'}: rename it")
    y = _find(arrays, Y_NAMES, split) if labels is None else None
    if y is None and labels is None:
        raise InputError(f"expected an array named y in {str(path)!r}, got {', '.join(arrays)}: add it or pass labels")
    names = classes if classes is not None or "classes" not in arrays else [str(c) for c in arrays["classes"]]
    rows = read_list(labels, len(x), names) if labels is not None else encode_array(_same(y, x, "y"), names)
    return as_batch(
        x, *rows, ids=arrays.get("ids"), masks=arrays.get("masks"), kind=kind, bounds=bounds, rate=rate, take=take
    )


def npy(
    path: str | Path,
    *,
    labels: str | None = None,
    classes: Classes = None,
    kind: Kind | None = None,
    bounds: Bounds | None = None,
    rate: float | None = None,
    take: Take | None = None,
) -> Batch:
    """Signals (n, t) or (n, c, t), images (n, c, h, w), clips (n, c, t, h, w) from .npy; labels from a second file."""
    x = read_npy(Path(path))
    if labels is None:
        raise InputError(f"{Path(path).name!r} holds no labels: pass labels, a .npy or .csv with one label a sample")
    return as_batch(x, *read_list(labels, len(x), classes), kind=kind, bounds=bounds, rate=rate, take=take)


def as_batch(
    x: Array,
    y: Tensor,
    classes: Sequence[str] = (),
    *,
    ids: Array | None = None,
    masks: Array | None = None,
    kind: Kind | None = None,
    bounds: Bounds | None = None,
    rate: float | None = None,
    take: Take | None = None,
) -> Batch:
    """Any array of samples -> a batch: axes in order, uint8 pictures spread over the bounds, the chosen rows only."""
    shaped = channels_first(x, kind)
    is_signal = shaped.ndim == 3
    limits = bounds or (UNBOUNDED if is_signal else (0.0, 1.0))
    rows = (take or Take()).order(len(shaped))
    check_room(len(rows), shaped.shape[1:])
    names = [str(i) for i in range(len(x))] if ids is None else [str(i) for i in _same(ids, x, "ids")]
    return Batch(
        x=to_float(shaped[rows], limits),
        y=y[rows],
        ids=tuple(names[i] for i in rows),
        bounds=limits,
        classes=tuple(classes),
        masks=None if masks is None else _masks(_same(masks, x, "masks")[rows], shaped.shape[2:]),
        rate=rate,
    )


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
        raise InputError(
            f"expected {kind or 'signal, image or video'} samples along the first axis, got shape {x.shape}"
        )
    return x


def to_float(x: Array, bounds: Bounds) -> Tensor:
    """uint8 0..255 is spread over finite bounds, so (0, 1) divides by 255; other numbers stay as they are."""
    if x.dtype.kind not in "iuf":
        raise InputError(f"expected numbers as inputs, got {x.dtype}: convert them to float32")
    values = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    if x.dtype != np.uint8 or not math.isfinite(bounds[1] - bounds[0]) or bounds == (0.0, 255.0):
        return values
    scaled = values.div_(255)
    return scaled if bounds == (0.0, 1.0) else scaled.mul_(bounds[1] - bounds[0]).add_(bounds[0]).clamp_(*bounds)


def read_npz(path: Path) -> dict[str, Array]:
    """Every array of an .npz; one that holds pickled objects is refused."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except FileNotFoundError:
        raise InputError(f"there is no file {str(path)!r}: check the path") from None
    except (OSError, ValueError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {str(path)!r} as .npz ({error}): expected plain arrays x and y") from error


def _find(arrays: dict[str, Array], names: Sequence[str], split: str | None) -> Array | None:
    """The first array of one of these names, in any case; x_test goes before x_train unless `split` tells."""
    lower = {name.lower(): array for name, array in arrays.items()}
    ends = [f"_{split}"] if split else ["", "_test", "_train"]
    return next((lower[name + end] for end in ends for name in names if name + end in lower), None)


def _same(found: Array | None, x: Array, name: str) -> Array:
    assert found is not None
    if not found.ndim or len(found) != len(x):
        raise InputError(f"the array {name} has shape {found.shape} for {len(x)} inputs: expected one row a sample")
    return found


def _masks(masks: Array, size: tuple[int, ...]) -> Tensor:
    """(n, *size), or (n, 1, *size) -> bool (n, *size)."""
    shaped = masks[:, 0] if masks.ndim == len(size) + 2 and masks.shape[1] == 1 else masks
    if shaped.shape[1:] != size:
        raise InputError(f"expected masks of shape (n, {', '.join(map(str, size))}), got {masks.shape}")
    return torch.from_numpy(shaped != 0)
