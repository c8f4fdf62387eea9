"""What to ask a victim in order to learn from it: clean inputs first, then the same inputs distorted by a palette.

Row r of a plan is an input of its own, which depends only on the data, the palette and the seed, never on other rows: a plan that
was stopped goes on at the next row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.core.rng import sample_seeds, uniform
from rlab.data.batch import Batch, Samples
from rlab.filters.palette import Palette
from rlab.learning.answers import Answers, source_names
from rlab.victims.base import QueryMeter


@dataclass(frozen=True)
class Plan:
    """`queries` inputs made from a batch: all clean ones first, as far as the queries go."""

    batch: Batch  # in a random order, see `shuffled`
    palette: Palette
    grid: PatchGrid
    queries: int
    seed: int

    def parts(self, size: int) -> Iterator[range]:
        """Consecutive rows, at most `size` at a time, clean or distorted."""
        ends = (min(len(self.batch), self.queries), self.queries)
        for first, last in zip((0, ends[0]), ends, strict=True):
            yield from (range(at, min(at + size, last)) for at in range(first, last, size))

    @cached_property
    def sources(self) -> tuple[str, ...]:
        return source_names(self.batch.x)

    def inputs(self, rows: range) -> Tensor:
        """(m, c, *size): the inputs to send."""
        n = len(self.batch)
        x = self.batch.x[[row % n for row in rows]]
        if rows.start < n:
            return x
        seeds = sample_seeds(self.seed, rows.start, len(rows))
        bank = self.palette.bank(x, self.batch.bounds, seeds.tolist())
        return render(bank, draw_assignments(seeds, len(self.grid), len(self.palette)), self.grid)

    def answers(self, rows: range, x: Tensor, scores: Tensor) -> Answers:
        """The answers to these rows."""
        n = len(self.batch)
        source = tuple(self.sources[row % n] for row in rows)
        return Answers(x, scores, source, torch.full((len(rows),), rows.start >= n))


def draw_assignments(seeds: Tensor, patches: int, entries: int) -> Tensor:
    """(n, p): a random entry at a random share of the patches; shares from one patch to all are equally likely on a log scale."""
    chance = uniform(seeds, torch.zeros_like(seeds), 2 * patches + 1)
    share, which, entry = chance[:, :1], chance[:, 1 : patches + 1], chance[:, patches + 1 :]
    count = (patches**share).round().clamp(1, patches)
    changed = which.argsort(1).argsort(1) < count
    return torch.where(changed, 1 + (entry * entries).long().clamp(max=entries - 1), 0)


def shuffled(samples: Samples, most: int, seed: int) -> Batch:
    """At most `most` samples in a random order, because data are often sorted by class."""
    order = uniform(torch.tensor([seed]), torch.zeros(1, dtype=torch.int64), len(samples))[0].argsort(stable=True)
    return samples[order[:most].tolist()]


def ask(meter: QueryMeter, x: Tensor) -> Tensor:
    """Scores (m, k) on the CPU of inputs on the CPU; rows that got no answer within the budget are NaN.

    All rows count for the meter's only sample, so its budget is that of the whole plan.
    """
    rows = torch.zeros(len(x), dtype=torch.int64)
    return meter(x.to(meter.victim.device), rows, "learn").cpu()
