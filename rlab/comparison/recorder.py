"""Between an attack and the victim: counts every row, notes each sample's flips, and stops when all is decided."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

import torch
from torch import Tensor

from rlab.comparison.outcome import AttackOutcome
from rlab.core.distances import l2
from rlab.core.goals import Untargeted
from rlab.core.trace import Improvements
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.victims.base import Victim

Until = Literal["flip", "budget"]  # when a sample is decided: at its first flip, or once its budget is spent
Ask = Callable[[Tensor], Tensor]  # (m, c, *size) in [0, 1] -> scores (m, k)
VALUES = 40 * 3 * 224 * 224  # at once at most: some forty photos, for an attack's copies need memory
REDUCED = "reduced by bisection"  # how rows of a table call the stage after the flip
_HALVINGS = 10  # of the way to the original: what is left then is a thousandth


class Decided(Exception):
    """Every sample is flipped or out of budget; carries the control back through the attack's own loop."""


class QueryRecorder:
    """Samples x (n, c, *size) in [0, 1] that an attack works on, with the scores (n, k) of the untouched ones.

    An attack of ours says which sample a row belongs to: `ask`. A library that attacks several at once sends the rows of
    those it still works on, in order: which they are is told by the nearest original. Where only one sample is attacked,
    every row is its own.
    """

    def __init__(
        self,
        victim: Victim,
        x: Tensor,
        y: Tensor,
        budget: int,
        until: Until,
        scale: tuple[float, float],
        clean: Tensor | None = None,
    ):
        self.victim, self.x, self.y, self.budget, self.until, self.scale = victim, x, y, budget, until, scale
        self._clean = clean
        self.phase = "search"
        self.count = torch.zeros(len(x), dtype=torch.int64)  # queries
        self.nearest, self.l2 = x.clone(), torch.full((len(x),), torch.inf)  # flip of each sample, and its distance
        self.improvements: list[list[tuple[int, float]]] = [[] for _ in x]  # every nearer flip

    @property
    def clean(self) -> Tensor:
        assert self._clean is not None  # only a recorder made by hand has none
        return self._clean

    @property
    def open(self) -> Tensor:
        """(n,) bool: samples whose rows are still counted."""
        undecided = torch.isinf(self.l2) if self.until == "flip" else torch.ones_like(self.l2, dtype=torch.bool)
        return undecided & (self.count < self.budget)

    def live(self) -> Tensor:
        """(m,) the samples that are still open; once there is none, all is decided."""
        rows = self.open.nonzero().flatten()
        if not len(rows):
            raise Decided
        return rows.to(self.x.device)

    def ask(self, x: Tensor, samples: Tensor) -> Tensor:
        """x (m, c, *size) in [0, 1], samples (m,) whose rows they are -> scores (m, k).

        Rows of samples that are decided, and those beyond a budget, never reach the model; their scores are NaN.
        """
        self.live()
        told = samples.cpu()
        number = self.count[told] + _earlier(told) + 1  # of the query that each row would be
        sent = (self.open[told] & (number <= self.budget)).nonzero().flatten()
        scores = self.clean.new_full((len(x), self.clean.shape[1]), torch.nan)
        if len(sent):
            rows, chosen = x[sent.to(x.device)].detach(), told[sent]
            scores[sent.to(scores.device)] = answers = self._predict(rows)
            self.count.index_add_(0, chosen, torch.ones_like(chosen))
            flipped, distances = self._judge(chosen, rows, answers)
            for row in (flipped & (distances < self.l2[chosen])).nonzero().flatten().tolist():
                self._improve(int(chosen[row]), int(number[sent[row]]), rows[row], distances[row])
        return scores

    def margins(self, x: Tensor, samples: Tensor) -> tuple[Tensor, Tensor]:
        """The same as the margin (m,), NaN where nothing was asked, and the class (m,) that is next to the true one."""
        return margins(self.ask(x, samples), self.y[samples])

    def __call__(self, x: Tensor) -> Tensor:
        """x: (m, c, *size) in [0, 1] -> scores (m, k)."""
        self.live()
        x = x.detach().to(self.x)
        if not torch.isfinite(x).all():
            raise ValueError("it asked about NaN")
        asked = len(x)
        if len(self.x) == 1:
            x = x[: self.budget - int(self.count[0])]  # nothing beyond the budget reaches the model
        samples = self._identify(x)
        scores = self._predict(x)
        flipped, distances = self._judge(samples, x, scores)
        for row, i in enumerate(samples.tolist()):
            if self.open[i]:
                self.count[i] += 1
                if flipped[row]:
                    self._improve(i, int(self.count[i]), x[row], distances[row])
        if len(x) < asked or not self.open.any():
            raise Decided
        return scores

    def _predict(self, x: Tensor) -> Tensor:
        return self.victim(x * self.scale[1] + self.scale[0], self.phase)

    def _judge(self, samples: Tensor, x: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (m, c, *size) of these samples (m,): whether they are flips (m,), and how far away (m,)."""
        reached = Untargeted().reached(scores, self.y[samples.to(self.y.device)])
        return reached.cpu(), l2(self.x[samples.to(self.x.device)], x).cpu()

    def _improve(self, i: int, number: int, row: Tensor, distance: Tensor) -> None:
        if distance < self.l2[i]:
            self.l2[i], self.nearest[i] = distance, row
            self.improvements[i].append((number, float(distance)))

    def _identify(self, x: Tensor) -> Tensor:
        """(m,) which sample each row belongs to."""
        if len(self.x) == 1:
            return torch.zeros(len(x), dtype=torch.int64)
        nearest = torch.cdist(x.flatten(1), self.x.flatten(1)).argmin(1).cpu()
        if (nearest[1:] <= nearest[:-1]).any():
            raise InputError("cannot tell which samples the attack's rows belong to: attack one at a time, batch=1")
        return nearest

    def reduce(self, nearer: Callable[[Tensor, Tensor], Tensor] | None = None) -> None:
        """What an attack that ends at its flip has no means for: bisection towards the original while there is budget.

        `nearer`: samples (m,) and shares (m,) of the way -> inputs (m, c, *size); along a straight line where not said.
        """
        self.until, self.phase = "budget", "cleanup"
        won = torch.isfinite(self.l2)
        start, low, high = self.nearest.clone(), torch.zeros(len(self.x)), torch.ones(len(self.x))
        for _ in range(_HALVINGS):
            rows = (won & self.open).nonzero().flatten()
            if not len(rows):
                return
            share, at = (low + high)[rows] / 2, rows.to(self.x.device)
            if nearer is None:
                x = torch.lerp(self.x[at], start[at], share.to(start).view(-1, *(1,) * (start.dim() - 1)))
            else:
                x = nearer(at, share.to(start))
            held = ~Untargeted().reached(self.ask(x, at), self.y[at]).cpu()
            low[rows], high[rows] = torch.where(held, share, low[rows]), torch.where(held, high[rows], share)


def _earlier(samples: Tensor) -> Tensor:
    """(m,) -> (m,): how many rows of the same sample come before each."""
    order = samples.argsort(stable=True)
    counts = samples.bincount()
    starts = (counts.cumsum(0) - counts)[samples[order]]
    return torch.empty_like(samples).scatter_(0, order, torch.arange(len(samples)) - starts)


def margins(scores: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Scores (m, k) -> how far the true class is ahead (m,), and the class (m,) that is next."""
    best, rival = scores.scatter(1, y[:, None], -torch.inf).max(1)
    return scores.gather(1, y[:, None])[:, 0] - best, rival


def run_recorded(
    victim: Victim,
    batch: Batch,
    budget: int,
    run: Callable[[QueryRecorder, Tensor], object],
    until: Until = "flip",
    together: int = 1,
    reduce: bool = False,
) -> AttackOutcome:
    """Runs an attack on every sample the victim has right, `together` at once, and predicts each flip again.

    `run` gets a recorder and which samples of the batch (m,) it holds. The clean prediction is not counted as a query.
    """
    began, before, n = time.perf_counter(), victim.rows.total(), len(batch)
    low, span = check_unit(batch)
    x = ((batch.x - low) / span).to(victim.device).contiguous()  # libraries view rows flat
    y = batch.y.to(victim.device)
    clean = victim(batch.x.to(victim.device), "verify")
    correct = (clean.argmax(1) == y).cpu()
    succeeded, queries = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.int64)
    distances, improvements = torch.full((n,), torch.nan), list[Improvements]([()] * n)
    for rows in correct.nonzero().flatten().split(together):
        recorder = QueryRecorder(victim, x[rows], y[rows], budget, until, (low, span), clean[rows])
        with suppress(Decided):
            run(recorder, rows)
        if reduce:
            recorder.reduce()
        queries[rows] = recorder.count
        for i, flips in zip(rows.tolist(), recorder.improvements, strict=True):
            improvements[i] = tuple(flips)
        flipped = torch.isfinite(recorder.l2).nonzero().flatten()
        if len(flipped):
            perturbed = recorder.nearest[flipped]
            verified = Untargeted().reached(victim(perturbed * span + low, "verify"), y[rows[flipped]]).cpu()
            won = rows[flipped][verified]
            succeeded[won] = True
            distances[won] = l2(x[rows][flipped], perturbed).cpu()[verified]
    spent, seconds = victim.rows.total() - before, time.perf_counter() - began
    return AttackOutcome(correct, succeeded, queries, distances, budget, spent, seconds, tuple(improvements))


def check_unit(batch: Batch, images_only: bool = False) -> tuple[float, float]:
    """The least value and the span of data that have bounds; other data are refused."""
    low, span = batch.bounds[0], batch.bounds[1] - batch.bounds[0]
    if span == float("inf") or (images_only and batch.kind != "image"):
        wanted = "images" if images_only else "data"
        raise InputError(
            f"this attack of another library or paper is for {wanted} with bounds, got {batch.kind} data in "
            f"{list(batch.bounds)}: compare policies, or name another attack"
        )
    return low, span
