"""Batches to train on: attacked as they are needed, or drawn from what a round of attacks flipped, the classes evened out."""

from __future__ import annotations

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
class AdversaryPool:
    """Samples that one round of attacks flipped: which row of the data each was, and what became of it."""

    rows: Tensor  # (m,)
    x: Tensor  # (m, c, *size)


@dataclass(frozen=True)
class BatchSource:
    """Training batches from rows of the data; `share` of each is adversarial: drawn from a pool, or attacked as it is taken."""

    batch: Batch
    classes: int
    share: float
    augment: Callable[[Tensor], Tensor] | None
    generator: AdversaryGenerator
    pool: AdversaryPool | None = None

    def take(self, victim: TorchVictim, rows: Tensor, weights: Tensor, seed: int) -> TrainingBatch:
        """`weights` (k,): how often each class is to be drawn for the adversarial part."""
        x0, y = self.batch.x[rows].to(victim.device), self.batch.y[rows].to(victim.device)
        x0 = x0 if self.augment is None else self.augment(x0)
        count, rng = max(1, round(self.share * len(rows))), Generator().manual_seed(seed)
        if self.pool is not None:
            return self._replaced(
                self.pool, x0, y, draw(row_weights(self.batch.y[self.pool.rows], weights), count, rng)
            )
        chosen = draw(row_weights(y, weights), count, rng).to(x0.device)
        adversaries = self.generator(victim, x0[chosen], y[chosen], seed)
        x = x0.clone()
        x[chosen] = adversaries.x
        return TrainingBatch(x, x0, y, class_counts(y[chosen][adversaries.flipped], self.classes))

    def _replaced(self, pool: AdversaryPool, x0: Tensor, y: Tensor, chosen: Tensor) -> TrainingBatch:
        """The last rows give way to those chosen from the pool."""
        origin, keep = pool.rows[chosen], len(x0) - len(chosen)
        return TrainingBatch(
            torch.cat([x0[:keep], pool.x[chosen].to(x0)]),
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
    """(count,) different rows, by weights (n,); all of them where there are fewer."""
    return torch.multinomial(weights.cpu().double(), min(count, len(weights)), replacement=False, generator=rng)


def imbalance(counts: Tensor, names: Sequence[str]) -> str:
    """A sentence where the classes among flipped samples are uneven, else nothing."""
    if not counts.sum():
        return ""
    most, least = int(counts.argmax()), int(counts.argmin())
    if counts[most] < _UNEVEN * counts[least].clamp(min=1):
        return ""
    ends = [f"{names[i] if i < len(names) else i} {int(counts[i])}" for i in (most, least)]
    return f"samples found are uneven over the classes, from {ends[0]} down to {ends[1]}"
