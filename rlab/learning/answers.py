"""What a victim answered: the inputs that were sent and the scores that came back; and what to ask in order to learn from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from rlab.core.env import render
from rlab.core.grid import PatchGrid
from rlab.core.rng import sample_seeds, uniform
from rlab.data.batch import Batch, Samples
from rlab.errors import DataError
from rlab.filters.palette import Palette
from rlab.storage.digest import digest
from rlab.victims.meter import QueryMeter


@dataclass(frozen=True)
class Answers:
    """A victim's answers to n inputs.

    Scores are as `rlab.victims.base.Victim` returns them: log-probabilities, log-odds of a multi-label victim, and a ranking in
    the same form if the victim returns only labels. `source` names the clean input that each input was made from (by default
    itself), so that an input and its distorted copies can be kept together; `distorted` says which inputs are such copies.
    """

    x: Tensor  # (n, c, *size)
    scores: Tensor  # (n, k)
    source: tuple[str, ...] = ()
    distorted: Tensor | None = None  # (n,) bool; None: no input is distorted
    queries: int = 0  # spent only to learn; 0 for answers that an attack paid for
    origins: tuple[str, ...] = ()  # where they come from, for people

    def __post_init__(self) -> None:
        if not len(self.x) or len(self.x) != len(self.scores) or self.x.dim() < 3 or self.scores.dim() != 2:
            shapes = f"inputs {tuple(self.x.shape)} and scores {tuple(self.scores.shape)}"
            raise DataError(f"expected inputs (n, c, *size) and scores (n, k) with n above 0, got {shapes}")
        if self.source and len(self.source) != len(self.x):
            raise DataError(f"expected one source for each of {len(self.x)} inputs, got {len(self.source)}")
        if not self.source:
            object.__setattr__(self, "source", source_names(self.x))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def changed(self) -> Tensor:
        """(n,) bool: which inputs are distorted."""
        return torch.zeros(len(self), dtype=torch.bool) if self.distorted is None else self.distorted

    def __getitem__(self, rows: Tensor) -> Answers:
        """The answers in `rows` (m,), with the same cost and origins."""
        source = tuple(self.source[i] for i in rows.tolist())
        return Answers(self.x[rows], self.scores[rows], source, self.changed[rows], self.queries, self.origins)

    @classmethod
    def join(cls, parts: Sequence[Answers]) -> Answers:
        """All answers in one; the inputs have one shape and the scores one number of classes."""
        shapes = {(tuple(part.x.shape[1:]), part.scores.shape[1]) for part in parts}
        if len(shapes) != 1:
            listed = " and ".join(f"{shape} with {classes} classes" for shape, classes in sorted(shapes))
            raise DataError(f"expected answers about inputs of one shape and one number of classes, got {listed}")
        return cls(
            x=torch.cat([part.x for part in parts]),
            scores=torch.cat([part.scores for part in parts]),
            source=tuple(name for part in parts for name in part.source),
            distorted=torch.cat([part.changed for part in parts]),
            queries=sum(part.queries for part in parts),
            origins=tuple(dict.fromkeys(origin for part in parts for origin in part.origins)),
        )


def source_names(x: Tensor) -> tuple[str, ...]:
    """The names of clean inputs (n, c, *size): equal inputs get equal names, in whatever run they come up."""
    return tuple(digest(row) for row in x)


@dataclass(frozen=True)
class Plan:
    """`queries` inputs made from a batch: all clean ones first, as far as the queries go, then the same inputs distorted.

    Row r of a plan is an input of its own, which depends only on the data, the palette and the seed, never on other rows: a plan
    that was stopped goes on at the next row.
    """

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
