"""Goals for models that predict the class of each pixel."""

from __future__ import annotations

from dataclasses import dataclass, fields
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
    """A goal about the points of a map whose class is known; its last field is a share, called `what` in errors."""

    fits: ClassVar[Prediction] = "map"
    what: ClassVar[str]

    def __post_init__(self) -> None:
        value = getattr(self, fields(self)[-1].name)
        if not 0 < value < 1:
            raise OptionError(f"expected {self.what} between 0 and 1, got {value}")

    def check(self, labels: Tensor, classes: int) -> None:
        if labels.shape[1] != classes:
            raise DataError(f"expected maps of {classes} points, as the model's, got {labels.shape[1]}")

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        margin = self.margin(scores, self.aim(scores, labels))
        return (margin > 0) & margin.isfinite()


@dataclass(frozen=True)
class MapIoU(MapGoal):
    """The intersection over union of a class falls below `below`."""

    label: int
    below: float
    word: ClassVar[str] = "iou"
    what: ClassVar[str] = "an intersection over union"

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
    word: ClassVar[str] = "pixels"
    what: ClassVar[str] = "a share of pixels"

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
    word: ClassVar[str] = "lose"
    what: ClassVar[str] = "a share of the region"

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
    word: ClassVar[str] = "grow"
    what: ClassVar[str] = "a share of the other pixels"

    def margins(self, rows: Tensor, labels: Tensor) -> Tensor:
        outside = (labels != IGNORED) & (labels != self.label)
        return (self.share - _share(rows == self.label, outside))[:, None]
