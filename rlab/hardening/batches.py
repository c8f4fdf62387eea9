"""Batches to train on: attacked as they are needed, or drawn from what a round of attacks flipped, the classes evened out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from rlab.data.batch import Batch
from rlab.hardening.adversaries import AdversaryGenerator
from rlab.victims.torch_module import TorchVictim

_MOST = 4.0  # no class is drawn more than so many times as often as the usual one
_UNEVEN = 2.0  # times as many of one class as of another that count as uneven


@dataclass(frozen=True)
class TrainingBatch:
    """Some inputs untouched, some adversarial."""

    x: Tensor  # (b, c, *size)
    x0: Tensor  # (b, c, *size) all untouched
    y: Tensor
    flipped: Tensor  # (k,) of the adversaries made for this batch, how many the model gets wrong, by class


@dataclass(frozen=True)
class BatchSource(ABC):
    """Training batches from rows of the data; `share` of each is adversarial."""

    batch: Batch
    classes: int
    share: float
    augment: Callable[[Tensor], Tensor] | None

    @abstractmethod
    def take(self, victim: TorchVictim, rows: Tensor, weights: Tensor, seed: int) -> TrainingBatch:
        """`weights` (k,): how often each class is to be drawn for the adversarial part."""

    def clean(self, victim: TorchVictim, rows: Tensor) -> tuple[Tensor, Tensor]:
        x, y = self.batch.x[rows].to(victim.device), self.batch.y[rows].to(victim.device)
        return (x if self.augment is None else self.augment(x)), y

    def adversarial(self, rows: int) -> int:
        return max(1, round(self.share * rows))


@dataclass(frozen=True)
class LiveSource(BatchSource):
    """Attacks part of every batch, against the weights as they are."""

    generator: AdversaryGenerator

    def take(self, victim: TorchVictim, rows: Tensor, weights: Tensor, seed: int) -> TrainingBatch:
        x0, y = self.clean(victim, rows)
        rng = Generator().manual_seed(seed)
        chosen = draw(row_weights(y, weights), self.adversarial(len(rows)), rng).to(x0.device)
        adversaries = self.generator(victim, x0[chosen], y[chosen], seed)
        x = x0.clone()
        x[chosen] = adversaries.x
        return TrainingBatch(x, x0, y, class_counts(y[chosen][adversaries.flipped], self.classes))


@dataclass(frozen=True)
class AdversaryPool:
    """Samples that one round of attacks flipped: which row of the data each was, and what became of it."""

    rows: Tensor  # (m,)
    x: Tensor  # (m, c, *size)

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def fill(
        cls, generator: AdversaryGenerator, victim: TorchVictim, batch: Batch, chunk: int, seed: int
    ) -> AdversaryPool:
        """Attacks all data with the weights as they are and keeps what the model gets wrong."""
        rows, flipped_x = [], []
        for number, part in enumerate(torch.arange(len(batch)).split(chunk)):
            x, y = batch.x[part].to(victim.device), batch.y[part].to(victim.device)
            adversaries = generator(victim, x, y, seed + number)
            flipped = adversaries.flipped.cpu()
            rows.append(part[flipped])
            flipped_x.append(adversaries.x.cpu()[flipped])
        return cls(torch.cat(rows), torch.cat(flipped_x))


@dataclass(frozen=True)
class PoolSource(BatchSource):
    """Replaces part of every batch by samples of the pool, rare classes drawn more often."""

    pool: AdversaryPool

    def take(self, victim: TorchVictim, rows: Tensor, weights: Tensor, seed: int) -> TrainingBatch:
        x0, y = self.clean(victim, rows)
        count = min(self.adversarial(len(rows)), len(self.pool))
        drawn = row_weights(self.batch.y[self.pool.rows], weights)
        chosen = draw(drawn, count, Generator().manual_seed(seed))
        origin = self.pool.rows[chosen]
        keep = len(rows) - count
        return TrainingBatch(
            torch.cat([x0[:keep], self.pool.x[chosen].to(x0)]),
            torch.cat([x0[:keep], self.batch.x[origin].to(x0)]),
            torch.cat([y[:keep], self.batch.y[origin].to(y)]),
            torch.zeros(self.classes),
        )


def class_counts(y: Tensor, classes: int) -> Tensor:
    """(k,) samples of each class; a sample with several labels counts for each."""
    return (y.sum(0) if y.dim() > 1 else torch.bincount(y, minlength=classes)).cpu().float()


def class_weights(counts: Tensor) -> Tensor:
    """(k,) how often a class is drawn, so that classes that seldom flip come as often as the others."""
    if not counts.sum():
        return torch.ones_like(counts)
    usual = counts[counts > 0].median()
    return (usual / counts.clamp(min=1)).clamp(1 / _MOST, _MOST)


def row_weights(y: Tensor, weights: Tensor) -> Tensor:
    """(n,) by label; a sample with several labels is drawn as its rarest one."""
    weights = weights.to(y.device)
    if y.dim() > 1:
        return torch.where(y > 0, weights, 0.0).amax(1).clamp(min=float(weights.min()))
    return weights[y]


def draw(weights: Tensor, count: int, rng: Generator) -> Tensor:
    """(count,) different rows, by weights (n,)."""
    return torch.multinomial(weights.cpu().double(), count, replacement=False, generator=rng)


def imbalance(counts: Tensor, names: Sequence[str]) -> str:
    """A sentence where the classes among flipped samples are uneven, else nothing."""
    if not counts.sum():
        return ""
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] < _UNEVEN * counts[least].clamp(min=1):
        return ""
    ends = [f"{names[i] if i < len(names) else i} {int(counts[i])}" for i in (most, least)]
    return f"samples found are uneven over the classes, from {ends[0]} down to {ends[1]}"
