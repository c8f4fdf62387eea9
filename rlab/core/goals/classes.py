"""Goals for models that return scores of classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from rlab.core.goals.base import IMPOSSIBLE, Goal
from rlab.errors import DataError, OptionError
from rlab.storage.names import exact
from rlab.storage.outside import short

Relative = Literal["second-best", "least-likely", "data"]  # the class of each sample: by clean scores, or from the data


def _others(scores: Tensor, label: Tensor) -> Tensor:
    """(b, k), (b,) -> (b,): the highest score of any class other than `label`."""
    return scores.scatter(1, label[:, None], -math.inf).amax(1)


def score_of(scores: Tensor, label: Tensor) -> Tensor:
    """(b, k), (b,) -> (b,): the score of a class."""
    return scores.gather(1, label[:, None]).squeeze(1)


@dataclass(frozen=True)
class Untargeted(Goal):
    """Any class other than the true one gets the highest score."""

    def __str__(self) -> str:
        return "untargeted"

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return score_of(scores, labels) - _others(scores, labels)

    def alternatives(self, scores: Tensor, labels: Tensor) -> Tensor:
        """(b, k - 1): the lead over every other class, in order; over an impossible class it is large but finite."""
        finite, others = scores.clamp(min=IMPOSSIBLE), torch.arange(scores.shape[1] - 1, device=scores.device)
        return finite.gather(1, labels[:, None]) - finite.gather(1, others + (others >= labels[:, None]))


@dataclass(frozen=True, eq=False)
class Targeted(Goal):
    """A class gets the highest score: the same one for all samples, one for each sample, the runner-up or the least likely.

    Samples of the target class are not attacked.
    """

    target: int | Relative | Tensor | Sequence[int]  # a tensor (n,), an array or a list: the class of each sample

    def __post_init__(self) -> None:
        if isinstance(self.target, str):
            if self.target not in get_args(Relative):
                raise OptionError(f"expected a target class, {' or '.join(get_args(Relative))}, got {self.target!r}")
            return
        try:
            classes = torch.as_tensor(self.target)
        except (TypeError, ValueError, RuntimeError) as error:
            raise OptionError(f"expected a target class, or one for each sample, got {short(self.target)}") from error
        if classes.dim() > 1 or classes.is_floating_point() or classes.is_complex():
            raise OptionError(f"expected one target class per sample, got {classes.dtype} {tuple(classes.shape)}")
        object.__setattr__(self, "target", classes.long().cpu() if classes.dim() else int(classes))

    def __str__(self) -> str:
        return f"targeted:{'data' if isinstance(self.target, Tensor) else self.target}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Targeted) or str(self) != str(other):
            return False
        mine, theirs = (
            goal.target if isinstance(goal.target, Tensor) else torch.empty(0, dtype=torch.long)
            for goal in (self, other)
        )
        return torch.equal(mine, theirs)

    def __hash__(self) -> int:
        return hash(str(self))

    def aim(self, clean: Tensor, labels: Tensor, aims: Tensor | None = None) -> Tensor:
        """The class (b,) to aim at, if each sample has its own."""
        if isinstance(self.target, int):
            return labels
        if self.target == "least-likely":
            return clean.argmin(1)
        if self.target == "second-best":
            return clean.scatter(1, clean.argmax(1, keepdim=True), -math.inf).argmax(1)
        if aims is None:
            raise DataError("the data name no target classes: pass -D targets=COLUMN, or goal=rlab.Targeted(classes)")
        return aims.to(labels.device)

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        target = torch.full_like(labels, self.target) if isinstance(self.target, int) else labels
        return _others(scores, target) - score_of(scores, target)

    def correct(self, scores: Tensor, labels: Tensor) -> Tensor:
        right = super().correct(scores, labels)
        return right & (labels != self.target) if isinstance(self.target, int) else right

    def check(self, labels: Tensor, classes: int) -> None:
        super().check(labels, classes)
        if isinstance(self.target, int) and not 0 <= self.target < classes:
            raise OptionError(f"expected a target class in 0..{classes - 1}, got {self.target}")

    def check_aims(self, aims: Tensor, classes: int) -> None:
        """Refuse target classes of the data that the model does not have."""
        low, high = int(aims.min()), int(aims.max())
        if low < 0 or high >= classes:
            raise DataError(f"expected target classes in 0..{classes - 1}, got {low} to {high}")


@dataclass(frozen=True)
class Below(Goal):
    """The probability of the true class falls below `probability`."""

    probability: float

    def __post_init__(self) -> None:
        if not 0 < self.probability < 1:
            raise OptionError(f"expected a probability between 0 and 1, got {self.probability}")

    def __str__(self) -> str:
        return f"below:{exact(self.probability)}"

    def margin(self, scores: Tensor, labels: Tensor) -> Tensor:
        return score_of(scores, labels) - math.log(self.probability)


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
