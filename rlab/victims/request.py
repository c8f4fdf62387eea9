"""Rows that are sent to a model together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from torch import Tensor

from rlab.errors import VictimError


class Unanswered(VictimError):
    """Rows were sent without a usable answer; they may be sent, and are then counted, again."""

    def __init__(self, sentence: str, details: str = "") -> None:
        super().__init__(sentence)
        self.details = details  # what was sent and received, in further lines


class NoScores(VictimError):
    """The model understood the request, but its answer holds no scores, or not as many as expected."""


@final
@dataclass
class Request:
    """Rows of an input that are sent together until they are answered."""

    every: Tensor  # (m,) indices
    rows: Tensor  # those of them that the budget allows
    sent: int = 0  # times
    answer: Tensor | None = None  # (len(rows), k)
    error: Unanswered | None = None

    def part(self, x: Tensor) -> Tensor:
        """The request's rows of x, if possible as a slice, which is not a copy."""
        return x[int(self.every[0]) : int(self.every[-1]) + 1] if len(self.rows) == len(self.every) else x[self.rows]
