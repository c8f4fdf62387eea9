"""Rows that are sent to a model together, query counts per sample and phase, and the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import torch
from torch import Tensor

from rlab.errors import BudgetError, VictimError
from rlab.storage.journal import Journal

if TYPE_CHECKING:
    from rlab.victims.base import Victim

PHASES = ("search", "cleanup", "verify", "timing", "train", "learn", "resume")
STORED = PHASES[:4]  # those in the table of a run's samples


class QueryMeter:
    """A victim with a budget: counts queries per sample and phase, and stops any query beyond a sample's budget."""

    def __init__(self, victim: Victim, samples: int, budget: int | None = None, journal: Journal | None = None) -> None:
        self.victim = victim
        self.budget = budget
        self.journal = journal  # gets every answer, and knows those that an earlier process was given
        self.counts = torch.zeros(samples, len(PHASES), dtype=torch.int64)
        self.lost = torch.zeros(samples, dtype=torch.bool)  # samples whose last affordable query was not answered

    def __call__(self, x: Tensor, samples: Tensor, phase: str, assignment: Tensor | None = None) -> Tensor:
        """x: (n, c, *size), samples: (n,) the sample of each row -> scores (n, k); `assignment` (n, p) is for the journal."""
        return self.victim(x, phase, self.charge(samples, phase, assignment))

    def charge(self, samples: Tensor, phase: str, assignment: Tensor | None = None) -> Charge:
        return Charge(self, samples.cpu(), PHASES.index(phase), assignment)

    def spent(self, samples: Tensor) -> Tensor:
        """(n,) queries so far in all phases but `timing`, which told the search nothing."""
        counts = self.counts[samples.cpu()]
        return (counts.sum(1) - counts[:, PHASES.index("timing")]).to(samples.device)

    def left(self, samples: Tensor) -> Tensor:
        """(n,) queries left."""
        return (math.inf if self.budget is None else self.budget) - self.counts[samples.cpu()].sum(1).to(samples.device)


class Charge:
    """The samples that the rows of one call to the victim belong to."""

    def __init__(self, meter: QueryMeter, samples: Tensor, phase: int, assignment: Tensor | None = None) -> None:
        self.meter, self.samples, self.phase, self.assignment = meter, samples, phase, assignment
        self.sent = 0

    def affordable(self, rows: Tensor) -> Tensor:
        """Those of `rows` (m,) that the budget allows; until a row is sent twice, `check` has covered all of them."""
        return rows if self.sent == int(rows[0]) else rows[self._within_budget(rows)]

    def check(self) -> None:
        if not self._within_budget(torch.arange(len(self.samples))).all():
            raise BudgetError(f"a query would exceed the budget of {self.meter.budget} queries per sample")

    def _within_budget(self, rows: Tensor) -> Tensor:
        """(m,) bool: whether the sample's budget allows all its rows."""
        samples = self.samples[rows]
        if self.meter.budget is None:
            return torch.ones_like(samples, dtype=torch.bool)
        wanted = torch.bincount(samples, minlength=len(self.meter.counts))
        return (self.meter.counts.sum(1) + wanted <= self.meter.budget)[samples]

    def add(self, rows: Tensor, times: int = 1) -> None:
        chosen = self.samples[rows]
        self.sent += times * len(rows)
        self.meter.counts[:, self.phase].index_add_(0, chosen, torch.full_like(chosen, times))

    def recall(self, rows: Tensor, x: Tensor) -> dict[int, tuple[Tensor, int]]:
        """The answers to some rows of the input that the journal knows, by row, with the number of times each was sent."""
        if self.meter.journal is None or not self.meter.journal.knows():
            return {}
        found = self.meter.journal.recall(self.samples[rows], x[rows.to(x.device)])
        return {int(rows[at]): answer for at, answer in found.items()}

    def note(self, rows: Tensor, x: Tensor, answer: Tensor, sent: int) -> None:
        """Note the answers to some rows, whose inputs are x."""
        if self.meter.journal is not None:
            assignment = None if self.assignment is None else self.assignment[rows.to(self.assignment.device)]
            self.meter.journal.add(self.samples[rows], x, answer, sent, assignment)

    def lose(self, rows: Tensor) -> None:
        self.meter.lost[self.samples[rows]] = True


class Unanswered(VictimError):
    """Rows were sent without a usable answer; they may be sent, and are then counted, again."""

    def __init__(self, sentence: str, details: str = "", pause: float | None = None) -> None:
        super().__init__(sentence)
        self.details = details  # what was sent and received, in further lines
        self.pause = pause  # seconds that an overloaded server asked for; None if it did not put the rows off


class NoScores(VictimError):
    """The model understood the request, but its answer holds no scores, or not as many as expected."""


@final
@dataclass
class Request:
    """Rows of an input that are sent together until they are answered."""

    every: Tensor  # (m,) indices
    rows: Tensor  # those of them that the budget allows
    charge: Charge | None = None  # whose they are
    sent: int = 0  # times
    answer: Tensor | None = None  # (len(rows), k)
    error: Unanswered | None = None

    def part(self, x: Tensor) -> Tensor:
        """The request's rows of x, if possible as a slice, which is not a copy."""
        first, end = int(self.rows[0]), int(self.rows[-1]) + 1
        return x[first:end] if end - first == len(self.rows) else x[self.rows]

    def answered(self, x: Tensor, answer: Tensor) -> None:
        """Take the answer (len(rows), k) to the request's rows of x."""
        self.answer = answer
        if self.charge is not None:
            self.charge.note(self.rows, self.part(x), answer, self.sent)
