"""Stands between another library and the victim: counts every row, notes each sample's flip, stops when all is decided."""

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
from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.victims.base import Victim

Until = Literal["flip", "budget"]  # when a sample is decided: at its first flip, or once its budget is spent
Ask = Callable[[Tensor], Tensor]  # (m, c, *size) in [0, 1] -> scores (m, k)
Run = Callable[[Ask, Tensor, Tensor, int], object]  # the library's attack on x (n, c, *size), y (n,) with a seed


class Decided(Exception):
    """Every sample is flipped or out of budget; carries the control back through the library's own loop."""


class QueryRecorder:
    """Samples x (n, c, *size) in [0, 1] that one call of a library's attack works on.

    A library that attacks several at once sends the rows of those it still works on, in order: which they are is told by
    the nearest original. Where only one sample is attacked, every row is its own.
    """

    def __init__(self, victim: Victim, x: Tensor, y: Tensor, budget: int, until: Until, scale: tuple[float, float]):
        self.victim, self.x, self.y, self.budget, self.until, self.scale = victim, x, y, budget, until, scale
        self.count = torch.zeros(len(x), dtype=torch.int64)  # queries
        self.nearest, self.l2 = x.clone(), torch.full((len(x),), torch.inf)  # flip of each sample, and its distance

    @property
    def open(self) -> Tensor:
        """(n,) bool: samples whose rows are still counted."""
        undecided = torch.isinf(self.l2) if self.until == "flip" else torch.ones_like(self.l2, dtype=torch.bool)
        return undecided & (self.count < self.budget)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (m, c, *size) in [0, 1] -> scores (m, k)."""
        if not self.open.any():
            raise Decided
        x = x.detach().to(self.x)
        if not torch.isfinite(x).all():
            raise ValueError("it asked about NaN")
        asked = len(x)
        if len(self.x) == 1:
            x = x[: self.budget - int(self.count[0])]  # nothing beyond the budget reaches the model
        samples = self._identify(x)
        scores = self.victim(x * self.scale[1] + self.scale[0], "search")
        for i, row, flipped in zip(samples.tolist(), x, Untargeted().reached(scores, self.y[samples]), strict=True):
            self._note(i, row, bool(flipped))
        if len(x) < asked or not self.open.any():
            raise Decided
        return scores

    def _note(self, i: int, row: Tensor, flipped: bool) -> None:
        if not self.open[i]:
            return
        self.count[i] += 1
        distance = (row - self.x[i]).norm().cpu()
        if flipped and distance < self.l2[i]:
            self.l2[i], self.nearest[i] = distance, row

    def _identify(self, x: Tensor) -> Tensor:
        """(m,) which sample each row belongs to."""
        if len(self.x) == 1:
            return torch.zeros(len(x), dtype=torch.int64)
        nearest = torch.cdist(x.flatten(1), self.x.flatten(1)).argmin(1).cpu()
        if (nearest[1:] <= nearest[:-1]).any():
            raise InputError("cannot tell which samples the attack's rows belong to: attack one at a time, batch=1")
        return nearest


def run_recorded(
    victim: Victim, batch: Batch, budget: int, seed: int, run: Run, until: Until = "flip", together: int = 1
) -> AttackOutcome:
    """Runs a library's attack on every sample the victim has right, `together` at once, and predicts each flip again."""
    began, before, n = time.perf_counter(), victim.rows.total(), len(batch)
    low, span = _unit(batch)
    x = ((batch.x - low) / span).to(victim.device).contiguous()  # libraries view rows flat
    y = batch.y.to(victim.device)
    correct = (victim(batch.x.to(victim.device), "verify").argmax(1) == y).cpu()
    succeeded, queries = torch.zeros(n, dtype=torch.bool), torch.zeros(n, dtype=torch.int64)
    distances = torch.full((n,), torch.nan)
    for rows in correct.nonzero().flatten().split(together):
        recorder = QueryRecorder(victim, x[rows], y[rows], budget, until, (low, span))
        with suppress(Decided):
            run(recorder, x[rows], y[rows], seed + int(rows[0]))
        queries[rows] = recorder.count
        flipped = torch.isfinite(recorder.l2).nonzero().flatten()
        if len(flipped):
            perturbed = recorder.nearest[flipped]
            verified = Untargeted().reached(victim(perturbed * span + low, "verify"), y[rows[flipped]]).cpu()
            won = rows[flipped][verified]
            succeeded[won] = True
            distances[won] = l2(x[rows][flipped], perturbed).cpu()[verified]
    spent = victim.rows.total() - before
    return AttackOutcome(correct, succeeded, queries, distances, budget, spent, time.perf_counter() - began)


def _unit(batch: Batch) -> tuple[float, float]:
    low, span = batch.bounds[0], batch.bounds[1] - batch.bounds[0]
    if batch.kind != "image" or span == float("inf"):
        raise InputError(
            f"attacks of other libraries are for images with bounds, got {batch.kind} data in {list(batch.bounds)}: "
            f"compare policies only"
        )
    return low, span
