"""What counts as an error of the model. A goal's margin is positive while the model holds and below zero once it errs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.errors import InputError

_IMPOSSIBLE = -1e6  # the score that stands for a probability of zero where scores are compared


class Goal(ABC):
    """`scores` are log-probabilities (b, k), or log-odds (b, k) where labels are several at once."""

    multilabel: bool = False

    @abstractmethod
    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b, k), labels (b,) or (b, k) -> (b,); the goal is reached where it is below zero."""

    def alternatives(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b, k), labels -> (b, a): the margins of each way to reach the goal; the margin is the least of them."""
        return self.margin(scores, labels)[:, None]

    def reached(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.margin(scores, labels) < 0

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b,) where the model is right to begin with, which NaN is not; only those samples are attacked."""
        return (scores.argmax(1) == labels) & ~scores.isnan().any(1)

    def check(self, labels: Tensor, classes: int) -> None:
        """Refuses labels this goal cannot work with."""
        if labels.shape[1:]:
            raise InputError(
                f"expected one label a sample, got labels of shape {tuple(labels.shape)}: use goal 'multilabel'"
            )
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= classes:
            raise InputError(
                f"labels run from {low} to {high} but the model has {classes} classes: "
                f"expected labels in 0..{classes - 1}"
            )


def _others(scores: Tensor, label: Tensor) -> Tensor:
    """The best score among the classes that are not `label`: (b, k), (b,) -> (b,)."""
    return scores.scatter(1, label[:, None], -math.inf).amax(1)


def _of(scores: Tensor, label: Tensor) -> Tensor:
    return scores.gather(1, label[:, None]).squeeze(1)


@dataclass(frozen=True)
class Untargeted(Goal):
    """Any class but the true one wins."""

    def __str__(self) -> str:
        return "untargeted"

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return _of(scores, labels) - _others(scores, labels)

    def alternatives(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b, k - 1): ahead of every other class, in their order; a class that is impossible is far behind, not NaN."""
        finite, others = scores.clamp(min=_IMPOSSIBLE), torch.arange(scores.shape[1] - 1, device=scores.device)
        return finite.gather(1, labels[:, None]) - finite.gather(1, others + (others >= labels[:, None]))


@dataclass(frozen=True)
class Targeted(Goal):
    """The class `target` wins. Samples of that class are not attacked."""

    target: int

    def __str__(self) -> str:
        return f"targeted:{self.target}"

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        target = torch.full_like(labels, self.target)
        return _others(scores, target) - _of(scores, target)

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        return super().correct(scores, labels) & (labels != self.target)

    def check(self, labels: Tensor, classes: int) -> None:
        super().check(labels, classes)
        if not 0 <= self.target < classes:
            raise InputError(f"target class {self.target} is not one of the model's 0..{classes - 1}")


@dataclass(frozen=True)
class Below(Goal):
    """The true class's probability falls below `probability`."""

    probability: float

    def __post_init__(self) -> None:
        if not 0 < self.probability < 1:
            raise InputError(f"expected a probability between 0 and 1, got {self.probability}")

    def __str__(self) -> str:
        return f"below:{self.probability}"

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return _of(scores, labels) - math.log(self.probability)


@dataclass(frozen=True)
class MultiLabel(Goal):
    """Labels (b, k) of zeros and ones, judged one by one at log-odds 0. Flip `label`, or any one where it is None."""

    label: int | None = None
    multilabel = True

    def __str__(self) -> str:
        return "multilabel" if self.label is None else f"multilabel:{self.label}"

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.alternatives(scores, labels).amin(1)

    def alternatives(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b, k), each label alone, or (b, 1) where one is to flip: positive where a label is predicted as it is."""
        each = scores * (2 * labels.to(scores.dtype) - 1)
        return each if self.label is None else each[:, self.label, None]

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.margin(scores, labels) > 0

    def check(self, labels: Tensor, classes: int) -> None:
        if labels.shape[1:] != (classes,) or not ((labels == 0) | (labels == 1)).all():
            raise InputError(
                f"expected labels of zeros and ones, one column for each of the model's {classes} outputs, "
                f"got shape {tuple(labels.shape)}"
            )
        if self.label is not None and not 0 <= self.label < classes:
            raise InputError(f"label {self.label} is not one of the model's 0..{classes - 1}")


def parse_goal(text: str) -> Goal:
    """'untargeted', 'targeted:3', 'below:0.2', 'multilabel', 'multilabel:2'; the inverse of a goal's str."""
    name, _, value = text.partition(":")
    try:
        if name == "untargeted" and not value:
            return Untargeted()
        if name == "targeted":
            return Targeted(int(value))
        if name == "below":
            return Below(float(value))
        if name == "multilabel":
            return MultiLabel(int(value) if value else None)
    except InputError:
        raise
    except ValueError:
        pass
    raise InputError(
        f"expected a goal like untargeted, targeted:3, below:0.2, multilabel or multilabel:2, got {text!r}"
    )
