"""Samples that are in memory: arrays (x, y), data sets, loaders and other collections of pairs (x, y)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, SequentialSampler, Subset, TensorDataset, default_collate

from rlab.data.arrays import ArrayOptions, as_source, channels_first, settled_kind
from rlab.data.batch import DARK, KINDS, Batch, likely_top
from rlab.data.fields import UNIT
from rlab.data.labels import Array, Encoded, class_names, encode, encode_values
from rlab.data.take import Labels, Take
from rlab.errors import DataError
from rlab.predictions.boxes import TARGET_COLUMNS, TargetBoxes
from rlab.storage.config import Bounds

InMemory = Dataset[Any] | DataLoader[Any] | Sequence[Any] | Iterable[Any]
# the options that apply here
_SELECTED = ("limit", "order", "shuffle", "seed")
READ = ("target", "kind", "classes", "multilabel", "bounds", "rate", "unit", "leads", "layout", *_SELECTED)
_FORMS = "a Batch, a pair (x, y) of arrays, a Dataset or DataLoader of such pairs, or a path"
_BYTE = 255.0


def in_memory(data: object, source: ArrayOptions) -> Batch:
    """Turn samples in memory into a batch.

    uint8 is divided by 255 (or scaled to the bounds), other numbers become float32. The default bounds are [0, 1] if all values
    lie in it, 0..255 if they reach beyond its half, and their own range if some are negative; signals have none.
    """
    parts = (data, *data) if isinstance(data, tuple | list) else (data,)
    if any(type(part).__name__ == "DataFrame" for part in parts):
        advice = "pass its values, x.to_numpy(), shaped (n, channels, *size)"
        raise DataError(f"expected arrays, got a DataFrame: {advice}")
    x, y, take, left = _arrays(data if source.target != "boxes" else _with_rows(data), source.take)
    if y.dtype == object and not y.ndim and y.item() is None:
        raise DataError("expected labels beside the samples, got None: pass (x, y) with the true class of each sample")
    if not y.ndim or not x.ndim or len(x) != len(y):
        raise DataError(f"expected as many labels as samples, got x of shape {x.shape} and y of shape {y.shape}")
    shaped = channels_first(x, settled_kind(source, x.shape, source.layout), source.layout)
    known = {"kind": KINDS[shaped.ndim - 3], "bounds": source.bounds or _bounds(shaped)}
    known |= {name: getattr(left, name) for name in ("limit", "order", "shuffle")}
    labels = _labels(_without_objects(y) if y.dtype == object else y, _class_names(data), source)
    found = as_source(source.model_copy(update=known), shaped, labels, layout="channels_first")
    return replace(found[:], take=take)


def _with_rows(data: Any) -> Any:
    """A pair (x, y) in which the boxes of each sample, (m, 5) or (boxes, classes), stand as one array."""
    if not (isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[1], tuple | list)):
        return data
    pairs = list[tuple[Tensor, Tensor]]()
    for objects in data[1]:
        if not (isinstance(objects, tuple | list) and len(objects) == 2):
            rows = plain_array(objects)
            if rows.ndim != 2 or rows.shape[1] != 5:
                wanted = "expected the objects of a sample as rows x1, y1, x2, y2, class"
                raise DataError(f"{wanted}, got shape {rows.shape}")
            objects = rows[:, :4], rows[:, 4]
        pairs.append((torch.as_tensor(objects[0]), torch.as_tensor(objects[1])))
    return data[0], TargetBoxes.of(pairs).encode().view(len(pairs), -1, TARGET_COLUMNS)


def _without_objects(y: Array) -> Array:
    """Labels (n,) that are objects, as texts or numbers."""
    each = y.tolist()
    if None in each:
        missing = f"{each.count(None)} of {len(each)} samples, first for sample {each.index(None)}"
        raise DataError(
            f"expected a label for every sample, got None for {missing}: fill it in or leave the sample out"
        )
    try:
        return y.astype(str if all(isinstance(label, str) for label in each) else np.float64)
    except (TypeError, ValueError):
        odd = next(label for label in each if not isinstance(label, int | float))
        raise DataError(f"expected integers or names as labels, got values like {str(odd)[:40]!r}") from None


def _labels(y: Array, own: tuple[str, ...] | None, source: ArrayOptions) -> Encoded:
    """Labels and class names; if both the data set and the user name the classes, the user's order counts."""
    labels, names = encode_values(y, source.target, source.classes if own is None else own, source.multilabel)
    if own is None or source.classes is None or labels.dim() > 1:
        return labels, names
    return encode([own[label] for label in labels.tolist()], class_names(source.classes))


def _class_names(data: Any) -> tuple[str, ...] | None:
    """Class names by index if the data set has them, as torchvision's do."""
    names = getattr(getattr(data, "dataset", data), "classes", None)
    listed = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return tuple(names) if listed and names else None


def _bounds(x: Array) -> Bounds | None:
    """The range of values (n, c, *size) if it is not the default; refuse values that fit no usual range."""
    if KINDS[x.ndim - 3] == "signal" or x.dtype.kind not in "iuf" or x.dtype == np.uint8:
        return None  # building the batch refuses non-numbers
    low, high = float(x.min(initial=0.0)), float(x.max(initial=1.0))
    if (low, high) == UNIT or not np.isfinite(high - low):
        return None
    if low < 0:
        return low, high
    if DARK < high <= _BYTE:
        return 0.0, _BYTE
    top = f"{likely_top(high) if high > _BYTE else high:.6g}"
    raise DataError(
        f"expected image values in 0..1 or 0..255, got 0 to {high:.6g}: pass their range, e.g. rlab.load((x, y), "
        f"bounds=(0, {top})), or divide them by it"
    )


def _arrays(data: Any, take: Take) -> tuple[Array, Array, Take, Take]:
    """x (n, ...), y (n, ...), how the samples were selected, and what is left to select."""
    if isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[0], Tensor | np.ndarray):
        return plain_array(data[0]), plain_array(data[1]), take, take
    if isinstance(data, DataLoader) and take.limit is not None:
        plain = isinstance(data.sampler, SequentialSampler) and data.collate_fn is default_collate
        data = data.dataset if plain and _sized(data.dataset) else data
    if _sized(data):
        labels = _known_labels(data) if take.limit is not None else None
        how = take if labels is not None or take.order == "first" else replace(take, shuffle=take.limit is not None)
        rows = sorted(how.any_rows(len(data)) if labels is None else how.rows(labels))
        pairs: Iterable[Any] = (data[row] for row in rows)
    elif isinstance(data, Iterable) and not isinstance(data, dict | str):
        how = Take(take.limit, order="first")
        batched = isinstance(data, DataLoader) and data.batch_sampler is not None
        every = (pair for batch in data for pair in zip(*_pair(batch), strict=True)) if batched else data
        pairs = islice(every, take.limit)
    else:
        raise DataError(f"expected data as {_FORMS}, got {type(data).__name__}")
    parts = [tuple(map(plain_array, _pair(pair))) for pair in pairs]
    if not parts:
        raise DataError("expected at least one sample, got none")
    try:
        x, y = (np.stack([part[i] for part in parts]) for i in (0, 1))
    except ValueError as error:
        raise DataError(f"expected samples of one shape: {error}") from error
    return x, y, how, Take()


def _sized(data: Any) -> bool:
    return hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, dict | str | DataLoader)


def _known_labels(data: Any) -> Labels | None:
    """The labels of a data set if they are known without reading its samples."""
    if isinstance(data, Subset):
        inner = _known_labels(data.dataset)
        return None if inner is None else np.asarray(inner)[list(data.indices)]
    if isinstance(data, TensorDataset):
        return data.tensors[-1]
    if isinstance(data, list | tuple):
        return np.stack([plain_array(_pair(sample)[1]) for sample in data]) if data else None
    labels = getattr(data, "targets", None)
    return labels if isinstance(labels, list | Tensor | np.ndarray) and len(labels) == len(data) else None


def _pair(sample: Any) -> tuple[Any, Any]:
    if isinstance(sample, tuple | list) and len(sample) == 2:
        return sample[0], sample[1]
    raise DataError(f"expected data as {_FORMS}, got samples of type {type(sample).__name__} instead of pairs (x, y)")


def plain_array(value: Any) -> Array:
    if np.ma.is_masked(value):
        raise DataError(
            f"expected arrays without masked values, got {np.sum(np.ma.getmaskarray(value))} of {value.size}: replace them with "
            "x.filled(value), or leave these samples out"
        )
    try:
        if isinstance(value, Tensor):
            value = value.detach().cpu()
            return np.asarray(value.float() if value.dtype in (torch.bfloat16, torch.float16) else value)
        return np.asarray(value)
    except (ValueError, TypeError, RuntimeError) as error:  # sparse, nested, quantized and meta tensors
        raise DataError(f"expected an array, got {type(value).__name__}: {error}") from error
