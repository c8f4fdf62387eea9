"""What counts as a model error. A goal's margin is positive while the model is right and negative once it errs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from rlab.errors import DataError, ModelError
from rlab.predictions.kinds import WORDS, Prediction
from rlab.storage.names import exact

IMPOSSIBLE = -1e6  # replaces the score of probability zero, so that differences are finite
_ENOUGH, _NEAR = 4, 1e-3  # rows whose probabilities all sum to 1, and how near


class Goal(ABC):
    """`scores` are log-probabilities (b, k), or log-odds (b, k) if a sample may have several labels; of a model that predicts
    something else, they are rows of `rlab.predictions`."""

    multilabel: bool = False
    fits: ClassVar[Prediction] = "classes"  # what the model predicts

    def aim(self, clean: Tensor, labels: Tensor, aims: Tensor | None = None) -> Tensor:
        """Labels for `margin`, given the answers (b, k) to the untouched inputs; `aims` (b,) are classes that the data name."""
        return labels

    @abstractmethod
    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b, k), labels (b,) or (b, k) -> (b,); a negative margin reaches the goal."""

    def alternatives(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b, k), labels -> (b, a): the margin of each way to reach the goal; `margin` is the smallest."""
        return self.margin(scores, labels)[:, None]

    def __repr__(self) -> str:
        return type(self).__name__

    def reached(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.margin(scores, labels) < 0

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b,) bool: whether the model is right before the attack; only those samples are attacked."""
        return (scores.argmax(1) == labels) & ~scores.isnan().any(1)

    def check(self, labels: Tensor, classes: int) -> None:
        """Refuse labels that do not fit the goal, or the model with rows of `classes` values."""
        if labels.shape[1:]:
            raise DataError(
                f"expected one label per sample, got labels of shape {tuple(labels.shape)}: use a model and a goal for several "
                "(-M multilabel=true --goal multilabel), or keep samples with one label (of ECG records: -D multilabel=false)"
            )
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= classes:
            raise DataError(
                f"labels run from {low} to {high} but the model has {classes} classes: expected labels in 0..{classes - 1}"
            )


@dataclass(frozen=True)
class RowGoal(Goal):
    """A goal about rows of boxes, maps or numbers; a row with NaN has the margin NaN. As text it is `word` and the fields."""

    word: ClassVar[str]

    def __str__(self) -> str:
        return ":".join([self.word, *self._values()])

    def _values(self) -> list[str]:
        """The fields as text."""
        return [exact(getattr(self, field.name)) for field in fields(self)]

    @abstractmethod
    def margins(self, rows: Tensor, labels: Tensor) -> Tensor:
        """(b, k), labels (b, l) -> (b, a): the margin of each way to reach the goal."""

    def alternatives(self, scores: Tensor, labels: Tensor) -> Tensor:
        lost = scores.isnan().any(1, keepdim=True)
        return torch.where(lost, torch.nan, self.margins(scores.nan_to_num(), labels))

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.alternatives(scores, labels).amin(1)

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        return self.margin(scores, self.aim(scores, labels)) > 0

    def check(self, labels: Tensor, classes: int) -> None:
        """The data have checked their targets."""


def check_kinds(goal: Goal, model: Prediction, data: Prediction) -> None:
    """Refuse a goal, a model and data of which each is about something else."""
    if goal.fits != model:
        raise ModelError(
            f"the goal {str(goal)!r} is for models that predict {WORDS[goal.fits]}, but this model predicts {WORDS[model]}: "
            f"choose another goal, or declare what the model returns (-M outputs={_OUTPUTS[goal.fits]})"
        )
    if data != model:
        raise DataError(
            f"the model predicts {WORDS[model]}, but the data hold {WORDS[data]}: load data with such targets (-D target={model})"
        )


_OUTPUTS: dict[Prediction, str] = {"classes": "auto", "boxes": "boxes", "map": "map", "numbers": "numbers"}


def refuse_other_labels(scores: Tensor, several: bool, one_label: bool, outputs: str) -> None:
    """Refuse outputs (b, k) that look like several labels per sample if the model is declared with one, and the reverse.

    `one_label` says that the data could have several; `outputs` is how the model's outputs were read.
    """
    if scores.shape[1] < 3 or scores.isnan().any():
        return
    spread = float((scores.amax(1) - scores.amin(1)).max())  # of logits of one class, practically never this small
    if one_label and not several and outputs == "logits" and spread <= 1:
        raise ModelError(
            f"the model returns {scores.shape[1]} values from 0 to 1 that do not sum to 1, like several labels per sample: pass "
            "multilabel=True to the model (-M multilabel=true)"
        )
    sums = scores.sigmoid().sum(1)
    if several and outputs == "probabilities" and len(sums) >= _ENOUGH and bool(((sums - 1).abs() < _NEAR).all()):
        raise ModelError(
            f"the model's {scores.shape[1]} probabilities sum to 1 in every sample, like one class per sample: leave out "
            "multilabel=True of the model (-M multilabel=true) and keep samples with one label (of ECG records: -D "
            "multilabel=false)"
        )
