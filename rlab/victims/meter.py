"""A victim with a budget for each sample."""

from __future__ import annotations

from functools import partial

from torch import Tensor

from rlab.storage.journal import Journal
from rlab.victims.account import Account
from rlab.victims.base import Victim


class QueryMeter(Account):
    """A victim with a budget: counts queries per sample and phase, and stops any query beyond a sample's budget."""

    def __init__(self, victim: Victim, samples: int, budget: int | None = None, journal: Journal | None = None) -> None:
        super().__init__(samples, budget, journal)
        self.victim = victim
        self.query = partial(victim, account=self)  # (x, phase, samples, assignment) -> scores, for loops

    def __call__(self, x: Tensor, samples: Tensor, phase: str, assignment: Tensor | None = None) -> Tensor:
        """x: (n, c, *size), samples: (n,) the sample of each row -> scores (n, k)."""
        return self.victim(x, phase, samples, assignment, self)
