"""A prior guesses in which directions the victim's margin may fall, without a query.

Write one in ten lines and pass it to the belief search, `rlab.attack(victim, batch, policy=rlab.Belief(prior=Edges()))`:

    class Edges(Prior):
        def directions(self, x, y, scale, goal):
            return (x - x.roll(1, -1))[:, None]
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from rlab.core.goals import Goal


class Prior(ABC):
    """Returns a few directions per input, of any length; the belief learns how far to trust them."""

    local: ClassVar[bool] = False  # compute again at the best flip, because gradients differ from place to place

    @abstractmethod
    def directions(self, x: Tensor, y: Tensor, scale: Tensor, goal: Goal) -> Tensor | None:
        """x (n, c, *size) in the data's values, y (n,) or (n, k), scale (n,) one unit of L2 in those values
        -> (n, k, c, *size), or None if nothing is known."""

    def __str__(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        return type(self).__name__

    def suited(self, shape: tuple[int, ...]) -> Prior:
        """The prior for inputs of this shape (c, *size), usually itself; raises an error if it does not fit them."""
        return self

    def check_classes(self, classes: int) -> None:
        """Raise an error if the number of classes matters and differs."""
        return None


@dataclass(frozen=True)
class NoPrior(Prior):
    """No directions."""

    def __str__(self) -> str:
        return "none"

    def directions(self, x: Tensor, y: Tensor, scale: Tensor, goal: Goal) -> None:
        return None
