"""Requests to a remote model: rows that are sent together, and again until they are answered."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from rlab.errors import VictimError
from rlab.victims.account import Call


class Unanswered(VictimError):
    """Rows were sent without a usable answer; they may be sent, and are then counted, again."""

    def __init__(self, sentence: str, details: str = "", pause: float | None = None) -> None:
        super().__init__(sentence)
        self.details = details  # what was sent and received, in further lines
        self.pause = pause  # seconds that an overloaded server asked for; None if it did not put the rows off


class NoScores(VictimError):
    """The model understood the request, but its answer holds no scores, or not as many as expected."""


@final
@dataclass(eq=False)
class Request:
    """Rows of a call that are sent together until they are answered."""

    call: Call
    rows: Tensor  # (m,) as many of them as the budget allows
    sent: int = 0  # times
    answered: bool = False
    error: Unanswered | None = None

    @property
    def part(self) -> Tensor:
        return self.call.part(self.rows)

    def count(self) -> None:
        """Count the rows, which are sent now."""
        self.call.count(self.rows)
        self.sent += 1

    def refused(self) -> None:
        """Take back the count of rows that did not reach the model."""
        self.call.count(self.rows, times=-1)

    def put(self, answer: Tensor) -> None:
        """Take the answer (m, k)."""
        self.call.put(self.rows, answer, self.sent)
        self.answered = True


def send(
    call: Call,
    requests: Sequence[Request],
    exchange: Callable[[Sequence[Request]], None],
    retries: int,
    backoff: float,
) -> None:
    """Exchange requests for answers, and repeat those that fail after all others, so that the order of answers does not matter.

    `exchange` sends requests, at least the first, and notes answers or errors. The first repetition waits for `backoff` seconds,
    and each of the next ones twice as long.
    """
    while unanswered := [request for request in requests if not request.answered and len(request.rows)]:
        most = max(request.sent for request in unanswered)
        if most > retries:
            break
        call.repeats |= most > 0
        affordable = call.affordable(torch.cat([request.rows for request in unanswered]))
        for request in unanswered:
            able = torch.isin(request.rows, affordable)
            call.lose(request.rows[~able])
            request.rows = request.rows[able]
        if left := [request for request in unanswered if len(request.rows)]:
            if most:
                time.sleep(backoff * 2 ** (most - 1))
            exchange(left)
    for request in requests:
        if (error := request.error) and not request.answered and (len(request.rows) or call.width is None):
            attempts = "1 attempt" if request.sent == 1 else f"{request.sent} attempts"
            raise VictimError(f"{error} ({attempts})\n{error.details}".rstrip()) from error
