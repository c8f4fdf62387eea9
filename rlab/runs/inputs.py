"""Turn what users have into a victim and a batch: modules, functions and names; arrays, datasets, loaders and paths.

One `Notice` lists the assumptions.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from rlab.data.arrays import as_batch as array_batch
from rlab.data.arrays import channels_first
from rlab.data.batch import KINDS, Batch, Samples
from rlab.data.fields import UNIT, DataFields, Take, check_room
from rlab.data.labels import encode_array
from rlab.data.load import DataOptions, load
from rlab.data.numpy_files import Array
from rlab.data.source import Source
from rlab.errors import DataError, Notice
from rlab.runs.own_classes import own_classes, position_array, relabelled
from rlab.storage.config import Bounds, check
from rlab.victims.base import Victim
from rlab.victims.callables import Classifier
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model, wrap
from rlab.victims.torch_module import TorchVictim

Model = Victim | nn.Module | Classifier | Callable[..., Any] | str | ModelOptions
Data = Samples | DataOptions | Dataset[Any] | DataLoader[Any] | Sequence[Any] | Iterable[Any] | os.PathLike[str]
_DATA = "a Batch, a pair (x, y) of arrays, a Dataset or DataLoader of such pairs, or a path"
_BYTE = 255.0


@contextmanager
def taken(model: Model, data: Data, limit: int | None = None, stream: bool = False) -> Iterator[tuple[Victim, Any]]:
    """Yield the victim and a batch of at most `limit` samples; a module is in evaluation mode inside the block only.

    With `stream`, a source is not read here."""
    assumed: list[str] = []
    if stream and isinstance(data, Source):
        batch: Samples = data.first(limit)
    elif isinstance(data, DataOptions):
        batch = data.open() if stream else data.load()
    else:
        bounds = model.bounds if isinstance(model, Victim) else None
        batch = as_batch(data, limit, bounds, assumed, own_classes(model))
    modes = {part: part.training for part in model.modules()} if isinstance(model, nn.Module) else {}
    try:
        victim = _as_victim(model, batch, assumed)
        if assumed:
            warnings.warn("rlab takes " + "; ".join(assumed), Notice, stacklevel=4)  # points at the caller's line
        yield victim, relabelled(batch, victim.own_classes)
    finally:
        for part, training in modes.items():
            part.training = training


def as_batch(
    data: Data,
    limit: int | None = None,
    bounds: Bounds | None = None,
    assumed: list[str] | None = None,
    own: tuple[str, ...] = (),
) -> Batch:
    """Return the first `limit` samples as a batch; append a line to `assumed` for every assumption. `own` are the model's own
    classes.

    uint8 is divided by 255 (or scaled to `bounds`), other numbers become float32. The default bounds are [0, 1] if all values
    lie in it, and their own range otherwise; signals have no bounds.
    """
    order = Take(limit)
    if isinstance(data, Source):
        return data.first(limit)[:]
    if isinstance(data, Batch):
        return data[order.order(len(data))] if limit is not None else data
    if isinstance(data, str | os.PathLike):
        return load(os.fspath(data), **({} if limit is None else {"limit": limit}))
    x, y = _arrays(data, limit)
    if not y.ndim or not x.ndim or len(x) != len(y):
        raise DataError(f"expected as many labels as samples, got x of shape {x.shape} and y of shape {y.shape}")
    notes = [] if assumed is None else assumed
    shaped = channels_first(x)
    if shaped.shape != x.shape:
        notes.append(f"arrays of shape {x.shape} as (samples, channels, *size) = {shaped.shape}")
    limits = bounds or _bounds(shaped, notes)
    fields = {"path": "memory", "kind": KINDS[shaped.ndim - 3], "bounds": limits}
    return array_batch(
        check(DataFields, fields, "the data"), shaped, *encode_array(position_array(y, own), own or _classes(data))
    )


def _classes(data: Any) -> tuple[str, ...] | None:
    """Return class names by index if the data set has them, as torchvision's do."""
    names = getattr(getattr(data, "dataset", data), "classes", None)
    listed = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return tuple(names) if listed and names else None


def _bounds(x: Array, notes: list[str]) -> Bounds | None:
    """Return the range of values (n, c, *size) if it is not the default."""
    if KINDS[x.ndim - 3] == "signal" or x.dtype.kind not in "iuf":  # building the batch refuses non-numbers
        return None
    if x.dtype == np.uint8:
        notes.append("uint8 values divided by 255")
        return None
    low, high = float(x.min(initial=0.0)), float(x.max(initial=1.0))
    if (low, high) == UNIT or not np.isfinite(high - low):
        return None
    limits = (0.0, _BYTE) if low == 0.0 and high <= _BYTE else (low, high)
    normalised = (
        "" if low == 0.0 else " (if they are normalised, pass them in [0, 1], and mean and std to rlab.TorchVictim)"
    )
    notes.append(f"values in [{limits[0]:.4g}, {limits[1]:.4g}], their own range{normalised}")
    return limits


def _arrays(data: Any, limit: int | None) -> tuple[Array, Array]:
    """Return x (n, ...) and y (n, ...)."""
    if isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[0], Tensor | np.ndarray):
        return _array(data[0])[:limit], _array(data[1])[:limit]
    if isinstance(data, DataLoader) and data.batch_sampler is not None:
        parts, count = [], 0
        for batch in data:
            parts.append(tuple(map(_array, _pair(batch))))
            count += len(parts[-1][0])
            if limit is not None and count >= limit:
                break
        join: Callable[..., Array] = np.concatenate
    else:
        parts = [tuple(map(_array, _pair(sample))) for sample in _samples(data, limit)]
        join = np.stack
    if not parts:
        raise DataError("expected at least one sample, got none")
    try:
        x, y = (join([part[i] for part in parts])[:limit] for i in (0, 1))
    except ValueError as error:
        raise DataError(f"expected samples of one shape: {error}") from error
    return x, y


def _samples(data: Any, limit: int | None) -> Iterator[Any]:
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, dict):
        count = len(data) if limit is None else min(limit, len(data))
        if count:
            check_room(count, _array(_pair(data[0])[0]).shape)
        return (data[i] for i in range(count))
    if isinstance(data, Iterable) and not isinstance(data, dict):
        return islice(data, limit)
    raise DataError(f"expected data as {_DATA}, got {type(data).__name__}")


def _pair(sample: Any) -> tuple[Any, Any]:
    if isinstance(sample, tuple | list) and len(sample) == 2:
        return sample[0], sample[1]
    raise DataError(f"expected data as {_DATA}, got samples of type {type(sample).__name__} instead of pairs (x, y)")


def _array(value: Any) -> Array:
    if isinstance(value, Tensor):
        value = value.detach().cpu()
        return np.asarray(value.float() if value.dtype in (torch.bfloat16, torch.float16) else value)
    try:
        return np.asarray(value)
    except ValueError as error:
        raise DataError(f"expected an array, got {type(value).__name__}: {error}") from error


def _as_victim(model: Model, batch: Samples, notes: list[str]) -> Victim:
    if isinstance(model, Victim):
        return model
    if isinstance(model, ModelOptions):
        return load_model(model, batch.bounds)
    if isinstance(model, str):
        return load_model(check(ModelOptions, {"name": model}, f"the model {model!r}"), batch.bounds)
    name = type(model).__name__
    options = {"name": f"the model, a {name},", "bounds": batch.bounds, "multilabel": batch.y.dim() > 1}
    victim = wrap(model, check(ModelOptions, options))
    how = (
        f"on {victim.device}, in evaluation mode, without mean and std (set them with rlab.TorchVictim)"
        if isinstance(victim, TorchVictim)
        else f"as {type(victim).__name__}, called with float32 arrays (rows, channels, *size)"
    )
    values = f"values in [{batch.bounds[0]:.4g}, {batch.bounds[1]:.4g}]"
    notes.append(f"{name} as a model of {values}{', several labels per sample,' if victim.multilabel else ''} {how}")
    return victim


def plain_input(thing: object, key: str) -> dict[str, Any]:
    """A model or data as fields of a configuration file."""
    if isinstance(thing, ModelOptions | DataOptions):
        return thing.plain()
    return {key: os.fspath(thing) if isinstance(thing, str | os.PathLike) else type(thing).__name__}
