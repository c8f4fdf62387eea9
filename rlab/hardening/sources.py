"""Where the batches to train on come from: attacked as they are needed, or drawn from what a round of attacks found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from rlab.data.batch import Batch
from rlab.hardening.balance import class_counts, draw, row_weights
from rlab.hardening.makers import Maker
from rlab.victims.torch_module import TorchVictim

Augment = Callable[[Tensor], Tensor]  # (b, c, *size) -> the same: the user's own, before anything is attacked


@dataclass(frozen=True)
class Mixed:
    """A batch to train on."""

    x: Tensor  # (b, c, *size) some untouched, some harder
    x0: Tensor  # (b, c, *size) all untouched
    y: Tensor
    found: Tensor  # (k,) of the harder ones made for this batch, how many the model gets wrong, by class


class Source(ABC):
    """Mixed batches from rows of the training data."""

    def __init__(self, batch: Batch, classes: int, share: float, augment: Augment | None) -> None:
        self.batch, self.classes, self.share, self.augment = batch, classes, share, augment

    @abstractmethod
    def mix(self, victim: TorchVictim, rows: Tensor, weights: Tensor, seed: int) -> Mixed:
        """`weights` (k,): how often each class is to be drawn for the harder part."""

    def clean(self, victim: TorchVictim, rows: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self.batch.x[rows].to(victim.device), self.batch.y[rows].to(victim.device)
        return (x if self.augment is None else self.augment(x)), y

    def harder(self, rows: int) -> int:
        return max(1, round(self.share * rows))


class LiveSource(Source):
    """Attacks part of every batch, against the weights as they are."""

    def __init__(self, batch: Batch, classes: int, share: float, augment: Augment | None, maker: Maker) -> None:
        super().__init__(batch, classes, share, augment)
        self.maker = maker

    def mix(self, victim: TorchVictim, rows: Tensor, weights: Tensor, seed: int) -> Mixed:
        x0, y = self.clean(victim, rows)
        chance = Generator().manual_seed(seed)
        chosen = draw(row_weights(y, weights), self.harder(len(rows)), chance).to(x0.device)
        made = self.maker(victim, x0[chosen], y[chosen], seed)
        x = x0.clone()
        x[chosen] = made.x
        return Mixed(x, x0, y, class_counts(y[chosen][made.flipped], self.classes))


@dataclass(frozen=True)
class Pool:
    """Samples one round of attacks found: which row of the data each was, and what became of it."""

    rows: Tensor  # (m,)
    x: Tensor  # (m, c, *size)

    def __len__(self) -> int:
        return len(self.rows)


class PoolSource(Source):
    """Replaces part of every batch by samples of the pool, seldom classes drawn more often."""

    def __init__(self, batch: Batch, classes: int, share: float, augment: Augment | None, pool: Pool) -> None:
        super().__init__(batch, classes, share, augment)
        self.pool = pool

    def mix(self, victim: TorchVictim, rows: Tensor, weights: Tensor, seed: int) -> Mixed:
        x0, y = self.clean(victim, rows)
        y_pool = self.batch.y[self.pool.rows]
        count = min(self.harder(len(rows)), len(self.pool))
        chosen = draw(row_weights(y_pool, weights), count, Generator().manual_seed(seed))
        origin = self.pool.rows[chosen]
        keep = len(rows) - count
        return Mixed(
            torch.cat([x0[:keep], self.pool.x[chosen].to(x0)]),
            torch.cat([x0[:keep], self.batch.x[origin].to(x0)]),
            torch.cat([y[:keep], self.batch.y[origin].to(y)]),
            torch.zeros(self.classes),
        )


def find_pool(maker: Maker, victim: TorchVictim, batch: Batch, together: int, seed: int) -> Pool:
    """Attacks all data with the weights as they are and keeps what the model gets wrong."""
    rows, found = [], []
    for number, part in enumerate(torch.arange(len(batch)).split(together)):
        made = maker(victim, batch.x[part].to(victim.device), batch.y[part].to(victim.device), seed + number)
        flipped = made.flipped.cpu()
        rows.append(part[flipped])
        found.append(made.x.cpu()[flipped])
    return Pool(torch.cat(rows), torch.cat(found))


def pool_counts(pool: Pool, batch: Batch, classes: int) -> Tensor:
    """(k,) how many of each class were found."""
    return class_counts(batch.y[pool.rows], classes)
