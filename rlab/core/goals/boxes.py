"""Goals for detectors: an object vanishes, gets another class or moves, one appears, or the image's precision falls.

An object is found if a box of its class with enough score overlaps it by half. Only objects that the model finds in the
untouched image are attacked; flipping one of them is enough, unless the goal says otherwise.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from rlab.core.goals.base import IMPOSSIBLE, RowGoal
from rlab.errors import ModelError, OptionError
from rlab.predictions.boxes import COLUMNS, FLOOR, MOST, NOBODY, Boxes, TargetBoxes, overlaps
from rlab.predictions.kinds import Prediction
from rlab.predictions.metrics import average_precision
from rlab.storage.names import exact

SCORE = 0.3  # from which on a box counts
OVERLAP = 0.5  # intersection over union from which on a box is that of an object
ANY = "any"  # class, in the text of a goal
_TOUCHES = 0.1  # overlap from which on a box has to do with an object


def _best(boxes: Boxes, which: Tensor) -> Tensor:
    """Log-odds (n, m) of the best score among the boxes `which` (n, m, k) bool; those of the lowest score if there are none."""
    return torch.where(which, boxes.score[:, None], 0.0).amax(2).clamp(FLOOR, 1 - 1e-6).logit()


def _same(objects: TargetBoxes, boxes: Boxes) -> Tensor:
    """(n, m, k) bool: whether a box has the class of an object."""
    return objects.label[:, :, None] == boxes.label[:, None]


@dataclass(frozen=True)
class BoxGoal(RowGoal):
    """A goal about boxes; `score` is the lowest score of a box that counts."""

    score: float = SCORE
    fits: ClassVar[Prediction] = "boxes"

    def __post_init__(self) -> None:
        if not FLOOR < self.score < 1:
            raise OptionError(f"expected a score between {FLOOR} and 1, got {self.score}")

    def _values(self) -> list[str]:
        return [] if self.score == SCORE else [exact(self.score)]

    def check(self, labels: Tensor, classes: int) -> None:
        if classes != MOST * COLUMNS:
            raise ModelError(f"expected rows of {MOST * COLUMNS} values for boxes, got {classes}")

    @property
    def threshold(self) -> float:
        """The log-odds of the lowest score that counts."""
        return math.log(self.score / (1 - self.score))


@dataclass(frozen=True)
class ObjectGoal(BoxGoal):
    """A goal about each object that the model is right about."""

    @abstractmethod
    def objects(self, boxes: Boxes, objects: TargetBoxes) -> Tensor:
        """(n, m): the margin of each object, positive while the model is right about it."""

    def aim(self, clean: Tensor, labels: Tensor, aims: Tensor | None = None) -> Tensor:
        """The objects about which the model is right."""
        objects = TargetBoxes.decode(labels)
        return objects.only(objects.there & (self.objects(Boxes.decode(clean), objects) > 0)).encode().to(labels.dtype)

    def margins(self, rows: Tensor, labels: Tensor) -> Tensor:
        objects = TargetBoxes.decode(labels)
        return torch.where(objects.there, self.objects(Boxes.decode(rows), objects), -IMPOSSIBLE)

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        return super().correct(scores, labels) & TargetBoxes.decode(self.aim(scores, labels)).there.any(1)


@dataclass(frozen=True)
class Vanish(ObjectGoal):
    """An object is no longer found; with `every`, none is."""

    every: bool = False
    word: ClassVar[str] = "vanish"

    def __str__(self) -> str:
        return ":".join(["vanish-all" if self.every else "vanish", *self._values()])

    def objects(self, boxes: Boxes, objects: TargetBoxes) -> Tensor:
        near = overlaps(objects.xyxy, boxes.xyxy) >= OVERLAP
        return _best(boxes, near & _same(objects, boxes)) - self.threshold

    def margins(self, rows: Tensor, labels: Tensor) -> Tensor:
        each = super().margins(rows, labels)
        if not self.every:
            return each
        there = TargetBoxes.decode(labels).there
        return torch.where(there, each, IMPOSSIBLE).amax(1, keepdim=True)


@dataclass(frozen=True)
class Misclassify(ObjectGoal):
    """The box of an object stays, but another class has the best score there."""

    word: ClassVar[str] = "misclassify"

    def objects(self, boxes: Boxes, objects: TargetBoxes) -> Tensor:
        near, same = overlaps(objects.xyxy, boxes.xyxy) >= OVERLAP, _same(objects, boxes)
        own, other = _best(boxes, near & same), _best(boxes, near & ~same & (boxes.label != NOBODY)[:, None])
        return own.clamp(min=self.threshold) - other  # the object must be found still, as something else

    def aim(self, clean: Tensor, labels: Tensor, aims: Tensor | None = None) -> Tensor:
        """The objects that are found with their class."""
        return Vanish(self.score).aim(clean, super().aim(clean, labels))


@dataclass(frozen=True)
class Move(ObjectGoal):
    """A box of an object's class still touches it, but none overlaps it by `overlap` any longer."""

    overlap: float = OVERLAP
    word: ClassVar[str] = "move"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not _TOUCHES < self.overlap < 1:
            raise OptionError(f"expected an intersection over union between {_TOUCHES} and 1, got {self.overlap}")

    def _values(self) -> list[str]:
        return [exact(self.overlap), *super()._values()]

    def objects(self, boxes: Boxes, objects: TargetBoxes) -> Tensor:
        covered, same = overlaps(objects.xyxy, boxes.xyxy), _same(objects, boxes)
        counts = same & (boxes.score >= self.score)[:, None]
        nearest = torch.where(counts, covered, 0.0).amax(2)
        touches = self.threshold - _best(boxes, same & (covered >= _TOUCHES))
        return torch.maximum(nearest - self.overlap, touches)

    def aim(self, clean: Tensor, labels: Tensor, aims: Tensor | None = None) -> Tensor:
        """The objects that a box overlaps enough."""
        objects, boxes = TargetBoxes.decode(labels), Boxes.decode(clean)
        counts = _same(objects, boxes) & (boxes.score >= self.score)[:, None]
        near = (overlaps(objects.xyxy, boxes.xyxy) > self.overlap) & counts
        return objects.only(objects.there & near.any(2)).encode().to(labels.dtype)


@dataclass(frozen=True)
class Appear(BoxGoal):
    """A box appears where no object is, of the class `label` or, if it is None, of any."""

    label: int | None = None
    word: ClassVar[str] = "appear"

    def _values(self) -> list[str]:
        score = super()._values()
        label = ANY if self.label is None else exact(self.label)
        return [label, *score] if score or self.label is not None else []

    def margins(self, rows: Tensor, labels: Tensor) -> Tensor:
        boxes, objects = Boxes.decode(rows), TargetBoxes.decode(labels)
        touches = (overlaps(objects.xyxy, boxes.xyxy) >= _TOUCHES) & objects.there[:, :, None]
        wanted = (boxes.label != NOBODY) if self.label is None else boxes.label == self.label
        return self.threshold - _best(boxes, (wanted & ~touches.any(1))[:, None])

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Whether there is no such box yet; images without objects can be attacked too."""
        return self.margin(scores, labels) > 0


@dataclass(frozen=True)
class Precision(BoxGoal):
    """The average precision of the image at an overlap of one half, over its classes, falls below `value`."""

    value: float = 0.5
    word: ClassVar[str] = "map50"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.value <= 1:
            raise OptionError(f"expected an average precision above 0 and up to 1, got {self.value}")

    def _values(self) -> list[str]:
        return [exact(self.value), *super()._values()]

    def margins(self, rows: Tensor, labels: Tensor) -> Tensor:
        """The difference in precision; precision moves in steps, so the scores of the objects found are a factor."""
        boxes, objects = Boxes.decode(rows), TargetBoxes.decode(labels)
        precise = average_precision(boxes, objects, OVERLAP)
        near = (overlaps(objects.xyxy, boxes.xyxy) >= OVERLAP) & _same(objects, boxes)
        best = torch.where(near, boxes.score[:, None], 0.0).amax(2)
        mean = torch.where(objects.there, best, 0.0).sum(1) / objects.there.sum(1).clamp(min=1)
        return ((precise - self.value) * (1 + mean))[:, None]

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        return (self.margin(scores, labels) > 0) & TargetBoxes.decode(labels).there.any(1)
