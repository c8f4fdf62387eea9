"""Labels of data as positions among the classes of a model that has labels of its own, such as a scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from rlab.data.batch import Batch, Samples
from rlab.data.numpy_files import Array
from rlab.data.source import Source
from rlab.errors import DataError
from rlab.storage.outside import short
from rlab.victims.base import Victim
from rlab.victims.callables import class_text, class_texts

Labelled = TypeVar("Labelled", bound=Samples)


def own_classes(model: object) -> tuple[str, ...]:
    """Names of the model's classes in the order of its scores; empty if they are the numbers from 0."""
    return model.own_classes if isinstance(model, Victim) else class_texts(model)


def position_array(labels: Array, own: Sequence[str]) -> Array:
    """Labels (n,) as positions among the model's own classes; unchanged if it has none, or if samples have several labels."""
    if not own or labels.ndim != 1:
        return labels
    return np.array(_positions([class_text(label) for label in labels.tolist()], own))


def relabelled(samples: Labelled, own: Sequence[str]) -> Labelled:
    """The samples with labels and names in the order of the model's own classes, if it has any."""
    if not own or samples.y.dim() != 1 or tuple(own) == samples.classes or not isinstance(samples, Batch | Source):
        return samples
    y = torch.tensor(_positions([samples.label_name(label) for label in samples.y.tolist()], own))
    return replace(samples, y=y, classes=tuple(own))


def _positions(labels: Sequence[str], own: Sequence[str]) -> list[int]:
    """Positions of names; numbers from 0 are positions already if the model's own classes are not numbers."""
    place = {name: i for i, name in enumerate(own)}
    if not any(name.lstrip("-").isdigit() for name in own):
        place = {str(i): i for i in range(len(own))} | place
    if unknown := [label for label in labels if label not in place]:
        known = short(", ".join(own))
        raise DataError(
            f"the data have the label {unknown[0]!r}, but the model was fitted on {known}: correct the labels"
        )
    return [place[label] for label in labels]
