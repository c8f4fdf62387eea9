"""Query counts per sample and phase, their budget, and the rows of one call to a model."""

from __future__ import annotations

import math
from collections import Counter
from typing import final

import torch
from torch import Tensor

from rlab.errors import BudgetError, VictimError
from rlab.storage.journal import Journal
from rlab.victims.limit import spend

PHASES = ("search", "cleanup", "verify", "train", "learn", "resume")
STORED = PHASES[:3]  # those in the table of a run's samples


class Account:
    """Queries of each sample by phase, and the budget that no sample exceeds."""

    def __init__(self, samples: int, budget: int | None = None, journal: Journal | None = None) -> None:
        self.budget = budget
        self.journal = journal  # gets every answer, and knows those that an earlier process was given
        self.counts = torch.zeros(samples, len(PHASES), dtype=torch.int64)
        self.lost = torch.zeros(samples, dtype=torch.bool)  # samples whose last affordable query was not answered

    def spent(self, samples: Tensor) -> Tensor:
        """(n,) queries so far."""
        return self.counts[samples.cpu()].sum(1).to(samples.device)

    def left(self, samples: Tensor) -> Tensor:
        """(n,) queries left."""
        return (math.inf if self.budget is None else self.budget) - self.spent(samples)

    def allows(self, samples: Tensor) -> Tensor:
        """(m,) bool: whether the budget of each row's sample allows all of these rows."""
        if self.budget is None:
            return torch.ones_like(samples, dtype=torch.bool)
        wanted = torch.bincount(samples, minlength=len(self.counts))
        return (self.counts.sum(1) + wanted <= self.budget)[samples]

    def add(self, samples: Tensor, phase: str, times: int = 1) -> None:
        """Count one query for each row, or several."""
        self.counts[:, PHASES.index(phase)].index_add_(0, samples, torch.full_like(samples, times))


@final
class Call:
    """The rows of one call to a model: the samples they belong to, those that wait for an answer, and the answers."""

    def __init__(
        self,
        x: Tensor,
        phase: str,
        samples: Tensor | None,
        assignment: Tensor | None,
        account: Account | None,
        reached: Counter[str],
        device: torch.device,
        width: int | None,
    ) -> None:
        self.x, self.phase, self.account, self.assignment = x, phase, account, assignment
        self.reached = reached  # phase -> rows that reached the model
        self.device, self.width = device, width  # of answers
        self.samples = torch.zeros(len(x), dtype=torch.int64) if samples is None else samples.cpu()
        self.waits = torch.ones(len(x), dtype=torch.bool)
        self.answers: Tensor | None = None  # (n, k); NaN for rows without an answer
        self.repeats = False  # whether rows were sent in vain, so that the budget may not allow all that wait
        if account is None:
            return
        if not account.allows(self.samples).all():
            raise BudgetError(f"a query would exceed the budget of {account.budget} queries per sample")
        if account.journal is not None and account.journal.knows():
            for row, (answer, sent) in account.journal.recall(self.samples, x).items():
                self.take(torch.tensor([row]), answer[None], sent)

    @property
    def waiting(self) -> Tensor:
        """The rows that have no answer yet, in order."""
        return self.waits.nonzero()[:, 0]

    def part(self, rows: Tensor) -> Tensor:
        """The rows of x, if possible as a slice, which is not a copy."""
        first, end = int(rows[0]), int(rows[-1]) + 1
        return self.x[first:end] if end - first == len(rows) else self.x[rows]

    def affordable(self, rows: Tensor) -> Tensor:
        """Those of the rows (m,) that the budget allows; all of them before any row is sent again."""
        return rows if self.account is None or not self.repeats else rows[self.account.allows(self.samples[rows])]

    def count(self, rows: Tensor, times: int = 1) -> None:
        """Count rows that are sent to the model."""
        spend(times * len(rows), self.phase)
        self.reached[self.phase] += times * len(rows)
        if self.account is not None:
            self.account.add(self.samples[rows], self.phase, times)

    def put(self, rows: Tensor, answer: Tensor, sent: int = 1) -> None:
        """Take the answer (m, k) to rows that were sent together, so many times until it came."""
        self._place(rows, answer)
        if self.account is not None and (journal := self.account.journal) is not None:
            chosen = self.assignment if journal.learns else None
            chosen = None if chosen is None else chosen[rows.to(chosen.device)]
            journal.add(self.samples[rows], self.part(rows), answer, sent, chosen)

    def take(self, rows: Tensor, answer: Tensor, times: int = 1) -> None:
        """Take the answer (m, k) to rows that do not reach the model now, but count for the budget all the same."""
        self._place(rows, answer)
        if self.account is not None:
            self.account.add(self.samples[rows], self.phase, times)

    def _place(self, rows: Tensor, answer: Tensor) -> None:
        self.waits[rows], self.width = False, answer.shape[1]
        if len(rows) == len(self.x):
            self.answers = answer.to(self.device)
            return
        if self.answers is None:
            self.answers = self._unanswered()
        first, end = int(rows[0]), int(rows[-1]) + 1
        if end - first == len(rows):  # without waiting for a GPU
            self.answers[first:end] = answer
        else:
            self.answers[rows] = answer.to(self.device)

    def lose(self, rows: Tensor) -> None:
        """Give up rows that the budget does not allow to send again."""
        self.waits[rows] = False
        if self.account is not None:
            self.account.lost[self.samples[rows]] = True

    def result(self) -> Tensor:
        """The answers (n, k), with NaN for rows that were given up."""
        return self._unanswered() if self.answers is None else self.answers

    def _unanswered(self) -> Tensor:
        if self.width is None:
            raise VictimError("the model runs out of memory, and the budget is too small to retry with fewer inputs")
        return torch.full((len(self.x), self.width), math.nan, device=self.device)
