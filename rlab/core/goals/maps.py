"""Goals for models that predict the class of each pixel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlab.core.goals.base import RowGoal
from rlab.errors import DataError, OptionError
from rlab.predictions.kinds import Prediction
from rlab.predictions.maps import IGNORED


def _share(which: Tensor, among: Tensor) -> Tensor:
    """(n, p) bool each -> (n,): the share of the points `among` that are `which`; NaN if there are none."""
    return (which & among).sum(1) / among.sum(1)


@dataclass(frozen=True)
class MapGoal(RowGoal):
    """A goal about the points of a map whose class is known."""

    fits: ClassVar[Prediction] = "map"

    def check(self, labels: Tensor, classes: int) -> None:
        if labels.shape[1] != classes:
            raise DataError(f"expected maps of {classes} points, as the model's, got {labels.shape[1]}")

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        margin = self.margin(scores, self.aim(scores, labels))
        return (margin > 0) & margin.isfinite()


def _fraction(value: float, what: str) -> None:
    if not 0 < value < 1:
        raise OptionError(f"expected {what} between 0 and 1, got {value}")


@dataclass(frozen=True)
class MapIoU(MapGoal):
    """The intersection over union of a class falls below `below`."""

    label: int
    below: float

    def __post_init__(self) -> None:
        _fraction(self.below, "an intersection over union")

    def __str__(self) -> str:
        return f"iou:{self.label}:{self.below:g}"

    def margins(self, rows: Tensor, labels: Tensor) -> Tensor:
        known, true, found = labels != IGNORED, labels == self.label, rows == self.label
        shared = (true & found & known).sum(1) / ((true | found) & known).sum(1)
        return (shared - self.below)[:, None]

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        return super().correct(scores, labels) & (labels == self.label).any(1)


@dataclass(frozen=True)
class Pixels(MapGoal):
    """At least this share of the pixels that the model gets right get another class."""

    share: float

    def __post_init__(self) -> None:
        _fraction(self.share, "a share of pixels")

    def __str__(self) -> str:
        return f"pixels:{self.share:g}"

    def aim(self, clean: Tensor, labels: Tensor, aims: Tensor | None = None) -> Tensor:
        """The points that are right."""
        return torch.where(clean == labels, labels, IGNORED)

    def margins(self, rows: Tensor, labels: Tensor) -> Tensor:
        return (self.share - _share(rows != labels, labels != IGNORED))[:, None]


@dataclass(frozen=True)
class Lose(MapGoal):
    """Less than `share` of the region that the model gets right keeps its class."""

    label: int
    share: float = 0.5

    def __post_init__(self) -> None:
        _fraction(self.share, "a share of the region")

    def __str__(self) -> str:
        return f"lose:{self.label}:{self.share:g}"

    def aim(self, clean: Tensor, labels: Tensor, aims: Tensor | None = None) -> Tensor:
        """The region."""
        return torch.where((clean == labels) & (labels == self.label), labels, IGNORED)

    def margins(self, rows: Tensor, labels: Tensor) -> Tensor:
        return (_share(rows == labels, labels != IGNORED) - self.share)[:, None]


@dataclass(frozen=True)
class Grow(MapGoal):
    """A class covers more than `share` of the pixels outside its region."""

    label: int
    share: float = 0.1

    def __post_init__(self) -> None:
        _fraction(self.share, "a share of the other pixels")

    def __str__(self) -> str:
        return f"grow:{self.label}:{self.share:g}"

    def margins(self, rows: Tensor, labels: Tensor) -> Tensor:
        outside = (labels != IGNORED) & (labels != self.label)
        return (self.share - _share(rows == self.label, outside))[:, None]
