"""Turn what users have into a victim and a batch: modules, functions and names; arrays, datasets, loaders and paths."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from rlab.core.goals import Goal, Targeted
from rlab.data.batch import Batch, Samples
from rlab.data.eight_bit import EightBit
from rlab.data.load import DataOptions, load
from rlab.data.memory import InMemory, plain_array
from rlab.data.source import Decoded, Source
from rlab.data.take import Order, Take
from rlab.errors import DataError, give_notice
from rlab.predictions.kinds import Prediction
from rlab.progress import silent
from rlab.redact import spare
from rlab.storage.config import Bounds, check
from rlab.storage.outside import short
from rlab.victims.base import Victim
from rlab.victims.callables import Classifier, class_text, class_texts, is_regressor
from rlab.victims.http import HttpVictim
from rlab.victims.options import ModelOptions
from rlab.victims.resolve import load_model, wrap

Model = Victim | nn.Module | Classifier | Callable[..., Any] | str | ModelOptions
Data = Samples | DataOptions | InMemory | os.PathLike[str]
Labelled = TypeVar("Labelled", bound=Samples)


@contextmanager
def taken(
    model: Model, data: Data, limit: int | None = None, stream: bool = False, goal: str | Goal | None = None
) -> Iterator[tuple[Victim, Any]]:
    """Yield the victim and a batch of at most `limit` samples; a module is in evaluation mode inside the block only.

    With `stream`, a source is not read here. The samples have the target classes that `goal` lists, if it does: they belong to
    the first samples, which a limit then takes."""
    aims = goal.target if isinstance(goal, Targeted) and isinstance(goal.target, Tensor) else None
    order: Order = "spread" if aims is None else "first"
    several = isinstance(model, Victim | ModelOptions) and model.multilabel
    named = named_data(data, limit, order)
    if named is not None:
        if isinstance(model, Victim | ModelOptions):
            named = named.suited(several)
        batch: Samples = named.open() if stream else named.load()
    elif stream and isinstance(data, Source):
        batch = data if limit is None else data.select(Take(limit, order=order))
    else:
        bounds = model.bounds if isinstance(model, Victim) else None
        batch = as_batch(data, limit, bounds, own_classes(model), predicted_by(model), several, order)
    if isinstance(model, ModelOptions) and model.bounds is not None:
        batch = rescaled(batch, model.bounds)
    modes = {part: part.training for part in model.modules()} if isinstance(model, nn.Module) else {}
    victim, dtype = None, torch.get_default_dtype()
    try:
        victim = _as_victim(model, batch)
        torch.set_default_dtype(torch.float32)  # the user or the model's module may have changed it
        spare([*batch.ids, *batch.classes, *(str(value) for _, value in named or ())])
        batch = relabelled(batch, victim.own_classes)
        if aims is not None and isinstance(batch, Batch | Source):
            batch = replace(batch, aims=aims[:limit])
        yield victim, batch
    finally:
        torch.set_default_dtype(dtype)
        if isinstance(victim, HttpVictim) and str(victim.bill) and not silent.get():
            give_notice(f"the model at {victim.name}: {victim.bill}")
        for part, training in modes.items():
            part.training = training


def rescaled(samples: Labelled, bounds: Bounds) -> Labelled:
    """The samples with their range of values stretched to `bounds`; unchanged if one of them has no ends, or wrong ones."""
    (low, high), (least, most) = samples.bounds, bounds
    if bounds == samples.bounds or not least < most or not math.isfinite(high - low + most - least):
        return samples

    def stretch(x: Tensor) -> Tensor:
        wide = ((x - low) * ((most - least) / (high - low)) + least).clamp(least, most)
        return EightBit(bounds)(wide) if samples.eight_bit else wide

    if isinstance(samples, Batch):
        return replace(samples, x=stretch(samples.x), bounds=bounds)
    assert isinstance(samples, Source)
    read = samples.read

    def read_stretched(rows: Sequence[int]) -> Decoded:
        found = read(rows)
        return replace(found, x=None if found.x is None else stretch(found.x))

    return replace(samples, read=read_stretched, bounds=bounds)


def named_data(data: Data, limit: int | None = None, order: Order = "spread") -> DataOptions | None:
    """At most `limit` samples of a path or of declared data, as options; None for anything else."""
    if isinstance(data, str | os.PathLike):
        data = check(DataOptions, {"path": os.fspath(data)}, f"the data {str(data)!r}")
    if limit is None or not isinstance(data, DataOptions):
        return data if isinstance(data, DataOptions) else None
    chosen = {} if order == data.order else {"order": order}
    return data.model_copy(update={"limit": min(limit, data.limit or limit), **chosen})


def predicted_by(model: Model) -> Prediction | None:
    """What a model predicts, if it says so."""
    if isinstance(model, Victim):
        return model.prediction
    if isinstance(model, ModelOptions):
        return None if model.prediction == "classes" else model.prediction
    return "numbers" if hasattr(model, "predict") and is_regressor(model) else None


def as_batch(
    data: Data,
    limit: int | None = None,
    bounds: Bounds | None = None,
    own: tuple[str, ...] = (),
    target: Prediction | None = None,
    several: bool = False,
    order: Order = "spread",
) -> Batch:
    """Return at most `limit` samples, in this order, as a batch; `bounds` and `target` are those of arrays (see `rlab.load`),
    `own` the model's own classes, which the labels of arrays name, and `several` whether it has several labels."""
    take = Take(limit, order=order)
    if isinstance(data, Source):
        return (data if limit is None else data.select(take))[:]
    if isinstance(data, Batch):
        return data if limit is None else replace(data[take.rows(data.y)], take=take)
    if (named := named_data(data, limit, order)) is not None:
        return named.load()
    assert not isinstance(data, Samples | DataOptions | str | os.PathLike)
    options: dict[str, Any] = {"limit": limit, "order": order, "bounds": bounds, "target": target}
    options["multilabel"] = several or None
    if own and isinstance(data, tuple | list) and len(data) == 2:
        labels = plain_array(data[1])
        if labels.ndim == 1:  # otherwise samples have several labels
            labels = np.array(_positions([class_text(label) for label in labels.tolist()], own))
        data, options["classes"] = (data[0], labels), own
    return load(data, **{name: value for name, value in options.items() if value is not None})


def _as_victim(model: Model, batch: Samples) -> Victim:
    if isinstance(model, Victim):
        return model
    if isinstance(model, ModelOptions):
        return load_model(model, batch.bounds)
    if isinstance(model, str):
        return load_model(check(ModelOptions, {"name": model}, f"the model {model!r}"), batch.bounds)
    name = type(model).__name__
    options: dict[str, Any] = {"name": f"the model, a {name},", "bounds": batch.bounds}
    if batch.target == "classes":
        options["multilabel"] = batch.y.dim() > 1
    else:
        options["outputs"] = batch.target
    return wrap(model, check(ModelOptions, options))


# Models with labels of their own, such as scikit-learn classifiers: labels of data become positions among them.


def own_classes(model: object) -> tuple[str, ...]:
    """Names of the model's classes in the order of its scores; empty if they are the numbers from 0."""
    return model.own_classes if isinstance(model, Victim) else class_texts(model)


def relabelled(samples: Labelled, own: Sequence[str]) -> Labelled:
    """The samples with labels and names in the order of the model's own classes, if it has any."""
    if not own or samples.y.dim() != 1 or tuple(own) == samples.classes or not isinstance(samples, Batch | Source):
        return samples

    def among(labels: Tensor) -> Tensor:
        return torch.tensor(_positions([samples.label_name(label) for label in labels.tolist()], own))

    aims = None if samples.aims is None else among(samples.aims)
    return replace(samples, y=among(samples.y), classes=tuple(own), aims=aims)


def _positions(labels: Sequence[str], own: Sequence[str]) -> list[int]:
    """Positions of names; numbers from 0 are positions already if the model's own classes are not numbers."""
    place = {name: i for i, name in enumerate(own)}
    if not any(name.lstrip("-").isdigit() for name in own):
        place = {str(i): i for i in range(len(own))} | place
    if unknown := [label for label in labels if label not in place]:
        known = short(", ".join(own))
        raise DataError(f"the model was fitted on {known}, but the data have the label {unknown[0]!r}: correct it")
    return [place[label] for label in labels]


def plain_input(thing: object, key: str) -> dict[str, Any]:
    """A model or data as fields of a configuration file."""
    if isinstance(thing, ModelOptions | DataOptions):
        return thing.plain()
    return {key: os.fspath(thing) if isinstance(thing, str | os.PathLike) else type(thing).__name__}
