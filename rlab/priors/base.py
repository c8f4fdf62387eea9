"""A prior guesses, without asking the victim anything, in which directions its margin may fall.

Write one in ten lines and hand it to the belief search, `rlab.attack(victim, batch, policy=BeliefPolicy(prior=Edges()))`:

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
    """Returns a few directions for each input, of any length; a belief weighs how far to trust them."""

    local: ClassVar[bool] = False  # whether to ask again at the best flip, as gradients differ from place to place

    @abstractmethod
    def directions(self, x: Tensor, y: Tensor, scale: Tensor, goal: Goal) -> Tensor | None:
        """x (n, c, *size) in the data's values, y (n,) or (n, k), scale (n,) what one unit of L2 is in those values
        -> (n, k, c, *size), or None where nothing is known."""

    def __str__(self) -> str:
        return type(self).__name__

    def suited(self, shape: tuple[int, ...]) -> Prior:
        """The prior for inputs of this shape (c, *size): itself, unless it stands for several; others may be refused."""
        return self

    def check_classes(self, classes: int) -> None:
        """Refuses a victim with another number of classes, where that matters."""
        return None


@dataclass(frozen=True)
class NoPrior(Prior):
    """Nothing is known."""

    def __str__(self) -> str:
        return "none"

    def directions(self, x: Tensor, y: Tensor, scale: Tensor, goal: Goal) -> None:
        return None
