"""Goals for models that predict numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rlab.core.goals.base import RowGoal
from rlab.errors import DataError, OptionError
from rlab.predictions.kinds import Prediction
from rlab.storage.names import exact

Direction = Literal["both", "up", "down"]
_SIGNS: dict[Direction, str] = {"both": "", "up": "+", "down": "-"}


@dataclass(frozen=True)
class NumberGoal(RowGoal):
    """A goal about each number that the model returns."""

    fits: ClassVar[Prediction] = "numbers"

    def check(self, labels: Tensor, classes: int) -> None:
        if labels.shape[1] != classes:
            raise DataError(f"the model predicts {classes} numbers per sample, but the data have {labels.shape[1]}")


@dataclass(frozen=True)
class Deviate(NumberGoal):
    """A number moves away from the answer to the untouched input, by `by` or, if `relative`, by this share of it."""

    by: float
    relative: bool = False
    direction: Direction = "both"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.by) and self.by > 0):
            raise OptionError(f"expected a deviation above 0, got {self.by}")

    def __str__(self) -> str:
        amount = f"{Decimal(repr(float(self.by))).scaleb(2):f}%" if self.relative else exact(self.by)
        return f"deviate:{_SIGNS[self.direction]}{amount}"

    def aim(self, clean: Tensor, labels: Tensor, aims: Tensor | None = None) -> Tensor:
        """The answer to the untouched input."""
        return clean

    def margins(self, rows: Tensor, labels: Tensor) -> Tensor:
        far = self.by * (labels.abs() if self.relative else torch.ones_like(labels))
        up, down = far - (rows - labels), far + (rows - labels)
        return {"both": torch.cat([up, down], 1), "up": up, "down": down}[self.direction]


@dataclass(frozen=True)
class Above(NumberGoal):
    """A number rises above `value`."""

    value: float
    word: ClassVar[str] = "above"

    def margins(self, rows: Tensor, labels: Tensor) -> Tensor:
        return self.value - rows


@dataclass(frozen=True)
class Under(NumberGoal):
    """A number falls under `value`."""

    value: float
    word: ClassVar[str] = "under"

    def margins(self, rows: Tensor, labels: Tensor) -> Tensor:
        return rows - self.value
