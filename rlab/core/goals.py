"""What counts as a model error. A goal's margin is positive while the model is right and negative once it errs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.errors import DataError, InputError, ModelError, OptionError

_IMPOSSIBLE = -1e6  # replaces the score of probability zero, so that differences are finite
_ENOUGH, _NEAR = 4, 1e-3  # rows whose probabilities all sum to 1, and how near


class Goal(ABC):
    """`scores` are log-probabilities (b, k), or log-odds (b, k) if a sample may have several labels."""

    multilabel: bool = False

    @abstractmethod
    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b, k), labels (b,) or (b, k) -> (b,); a negative margin reaches the goal."""

    def alternatives(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b, k), labels -> (b, a): the margin of each way to reach the goal; `margin` is the smallest."""
        return self.margin(scores, labels)[:, None]

    def reached(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.margin(scores, labels) < 0

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b,) bool: whether the model is right before the attack; only those samples are attacked."""
        return (scores.argmax(1) == labels) & ~scores.isnan().any(1)

    def check(self, labels: Tensor, classes: int) -> None:
        """Refuse labels that do not fit the goal or the model."""
        if labels.shape[1:]:
            raise DataError(
                f"expected one label per sample, got labels of shape {tuple(labels.shape)}: use a model and a goal for several "
                "(-M multilabel=true --goal multilabel), or keep samples with one label (-D multilabel=false)"
            )
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= classes:
            raise DataError(
                f"labels run from {low} to {high} but the model has {classes} classes: "
                f"expected labels in 0..{classes - 1}"
            )


def refuse_other_labels(scores: Tensor, several: bool, one_label: bool, outputs: str) -> None:
    """Refuse outputs (b, k) that look like several labels per sample if the model is declared with one, and the reverse.

    `one_label` says that the data could have several; `outputs` is how the model's outputs were read.
    """
    if scores.shape[1] < 3 or scores.isnan().any():
        return
    spread = float((scores.amax(1) - scores.amin(1)).max())
    if (
        one_label and not several and outputs == "logits" and spread <= 1
    ):  # logits of one class practically never are so near
        raise ModelError(
            f"the model returns {scores.shape[1]} values from 0 to 1 that do not sum to 1, like several labels per sample: pass "
            "multilabel=True to the model (-M multilabel=true)"
        )
    sums = scores.sigmoid().sum(1)
    if several and outputs == "probabilities" and len(sums) >= _ENOUGH and bool(((sums - 1).abs() < _NEAR).all()):
        raise ModelError(
            f"the model's {scores.shape[1]} probabilities sum to 1 in every sample, like one class per sample: leave out "
            "multilabel=True of the model (-M multilabel=true) and keep samples with one label (-D multilabel=false)"
        )


def _others(scores: Tensor, label: Tensor) -> Tensor:
    """(b, k), (b,) -> (b,): the highest score of any class other than `label`."""
    return scores.scatter(1, label[:, None], -math.inf).amax(1)


def _score(scores: Tensor, label: Tensor) -> Tensor:
    return scores.gather(1, label[:, None]).squeeze(1)


@dataclass(frozen=True)
class Untargeted(Goal):
    """Any class other than the true one gets the highest score."""

    def __str__(self) -> str:
        return "untargeted"

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return _score(scores, labels) - _others(scores, labels)

    def alternatives(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b, k - 1): the lead over every other class, in order; over an impossible class it is large but finite."""
        finite, others = scores.clamp(min=_IMPOSSIBLE), torch.arange(scores.shape[1] - 1, device=scores.device)
        return finite.gather(1, labels[:, None]) - finite.gather(1, others + (others >= labels[:, None]))


@dataclass(frozen=True)
class Targeted(Goal):
    """The class `target` gets the highest score; samples of that class are not attacked."""

    target: int

    def __str__(self) -> str:
        return f"targeted:{self.target}"

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        target = torch.full_like(labels, self.target)
        return _others(scores, target) - _score(scores, target)

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        return super().correct(scores, labels) & (labels != self.target)

    def check(self, labels: Tensor, classes: int) -> None:
        super().check(labels, classes)
        if not 0 <= self.target < classes:
            raise OptionError(f"expected a target class in 0..{classes - 1}, got {self.target}")


@dataclass(frozen=True)
class Below(Goal):
    """The probability of the true class falls below `probability`."""

    probability: float

    def __post_init__(self) -> None:
        if not 0 < self.probability < 1:
            raise OptionError(f"expected a probability between 0 and 1, got {self.probability}")

    def __str__(self) -> str:
        return f"below:{self.probability}"

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return _score(scores, labels) - math.log(self.probability)


@dataclass(frozen=True)
class MultiLabel(Goal):
    """Labels (b, k) of zeros and ones, each with its threshold at log-odds 0; flip `label`, or any label if None."""

    label: int | None = None
    multilabel = True

    def __str__(self) -> str:
        return "multilabel" if self.label is None else f"multilabel:{self.label}"

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.alternatives(scores, labels).amin(1)

    def alternatives(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b, k), or (b, 1) for a single `label`: positive where the prediction is right."""
        each = scores * (2 * labels.to(scores.dtype) - 1)
        return each if self.label is None else each[:, self.label, None]

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.margin(scores, labels) > 0

    def check(self, labels: Tensor, classes: int) -> None:
        if labels.shape[1:] != (classes,) or not ((labels == 0) | (labels == 1)).all():
            raise DataError(
                f"expected labels of zeros and ones with one column for each of the model's {classes} outputs, "
                f"got shape {tuple(labels.shape)}"
            )
        if self.label is not None and not 0 <= self.label < classes:
            raise OptionError(f"expected a label in 0..{classes - 1}, got {self.label}")


def parse_goal(text: str) -> Goal:
    """Parse 'untargeted', 'targeted:3', 'below:0.2', 'multilabel' or 'multilabel:2'; the inverse of `str(goal)`."""
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
    raise OptionError(
        f"expected a goal like untargeted, targeted:3, below:0.2, multilabel or multilabel:2, got {text!r}"
    )
