"""Query counts per sample and phase, their budget, and the rows of one call to a model."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import final

import torch
from torch import Tensor

from rlab.errors import BudgetError, VictimError
from rlab.storage.journal import Journal
from rlab.victims.failures import Unanswered
from rlab.victims.limit import spend

PHASES = ("search", "cleanup", "verify", "train", "learn", "resume")
STORED = PHASES[:3]  # those in the table of a run's samples


class Account:
    """Queries of each sample by phase, and the budget that no sample exceeds."""

    @torch.inference_mode(False)  # another thread writes into these tensors
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
    """The rows of one call to a model: the samples they belong to, how often each was sent, and the answers."""

    @torch.inference_mode(False)
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
        self.tries = torch.zeros(
            len(x), dtype=torch.int64
        )  # (n,) how often each row was sent; -1 if it waits no longer
        self.errors = dict[int, tuple[Unanswered, int]]()  # of each row that failed, the last one, and its number
        self.answers: Tensor | None = None  # (n, k); NaN for rows without an answer
        if account is None:
            return
        if not account.allows(self.samples).all():
            raise BudgetError(f"a query would exceed the budget of {account.budget} queries per sample")
        if account.journal is not None and account.journal.knows():
            for row, (answer, sent) in account.journal.recall(self.samples, x).items():
                self.take(torch.tensor([row]), answer[None], sent)

    def turn(self, most: int, retries: int, backoff: float) -> list[Tensor]:
        """The rows to send now, in parts of at most `most`; empty if none waits.

        All rows of a part were sent equally often. Rows that the budget does not allow to send again are given up. Rows that
        failed are sent again up to `retries` times, first after `backoff` seconds, and then after twice as long each time.
        """
        rows = (self.tries >= 0).nonzero()[:, 0]
        if not len(rows):
            return []
        if not (again := int(self.tries[rows].max())):
            return list(rows.split(most))
        if (failed := [row for row in rows.tolist() if row in self.errors]) and again > retries:
            raise self._failure(failed[0])
        if self.account is not None:
            able = self.account.allows(self.samples[rows])
            self.lose(rows[~able])
            rows = rows[able]
        if failed and len(rows):
            time.sleep(backoff * 2 ** (again - 1))
        tries = self.tries[rows]
        return [part for times in tries.unique().flip(0) for part in rows[tries == times].split(most)]

    def part(self, rows: Tensor) -> Tensor:
        """The rows of x, if possible without a copy."""
        return self.x[_place(rows)]

    def count(self, rows: Tensor, times: int = 1) -> None:
        """Count rows that are sent to the model; -1 takes back rows that did not reach it."""
        spend(times * len(rows), self.phase)
        self.tries[rows] += times
        self.reached[self.phase] += times * len(rows)
        if self.account is not None:
            self.account.add(self.samples[rows], self.phase, times)

    def put(self, rows: Tensor, answer: Tensor) -> None:
        """Take the answer (m, k) to rows that were sent together."""
        sent = int(self.tries[rows[0]])
        self._keep(rows, answer)
        if self.account is not None and (journal := self.account.journal) is not None:
            chosen = self.assignment if journal.learns else None
            chosen = None if chosen is None else chosen[rows.to(chosen.device)]
            journal.add(self.samples[rows], self.part(rows), answer, sent, chosen)

    def take(self, rows: Tensor, answer: Tensor, times: int = 1) -> None:
        """Take the answer (m, k) to rows that do not reach the model now, but count for the budget all the same."""
        self._keep(rows, answer)
        if self.account is not None:
            self.account.add(self.samples[rows], self.phase, times)

    def _keep(self, rows: Tensor, answer: Tensor) -> None:
        self.tries[rows], self.width = -1, answer.shape[1]
        if len(rows) == len(self.x):
            self.answers = answer.to(self.device)
            return
        if self.answers is None:
            self.answers = self._unanswered()
        self.answers[_place(rows)] = answer.to(self.device)

    def fail(self, rows: Tensor, error: Unanswered) -> None:
        """Note why rows that were sent have no answer."""
        self.errors |= dict.fromkeys(rows.tolist(), (error, int(self.tries[rows[0]])))

    def lose(self, rows: Tensor) -> None:
        """Give up rows that the budget does not allow to send again."""
        self.tries[rows] = -1
        if self.account is not None:
            self.account.lost[self.samples[rows]] = True

    def result(self) -> Tensor:
        """The answers (n, k), with NaN for rows that were given up."""
        return self._unanswered() if self.answers is None else self.answers

    @torch.inference_mode(False)
    def _unanswered(self) -> Tensor:
        if self.width is not None:
            return torch.full((len(self.x), self.width), math.nan, device=self.device)
        if self.errors:
            raise self._failure(min(self.errors))
        raise VictimError("the model runs out of memory, and the budget is too small to retry with fewer inputs")

    def _failure(self, row: int) -> VictimError:
        error, times = self.errors[row]
        failure = VictimError(f"{error} ({times} attempt{'s' * (times > 1)})\n{error.details}".rstrip())
        failure.__cause__ = error
        return failure


def _place(rows: Tensor) -> slice | Tensor:
    """Rows as an index: if possible a slice, which needs no copy and does not wait for a GPU."""
    first, end = int(rows[0]), int(rows[-1]) + 1
    return slice(first, end) if end - first == len(rows) else rows
