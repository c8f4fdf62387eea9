"""The victim and the few samples on which it is examined; the victim counts all queries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import chain, zip_longest

import torch
from torch import Generator, Tensor

from rlab.data.batch import Batch
from rlab.errors import InputError
from rlab.victims.base import Victim
from rlab.victims.http import HttpVictim
from rlab.victims.reading import UNBOUNDED, Layout

PHASE = "doctor"


@dataclass(frozen=True)
class Probe:
    """`victim` is a copy that shares the counter of the original, whose settings stay unchanged."""

    victim: Victim
    batch: Batch
    more: Batch | None = None  # up to twice as many other samples, if the first ones leave doubts

    @classmethod
    def of(cls, victim: Victim, batch: Batch, samples: int, seed: int) -> Probe:
        rows = pick(batch.y, samples, seed)
        rest = sorted(set(range(len(batch))).difference(rows))
        others = [rest[row] for row in pick(batch.y[rest], 2 * samples, seed)]
        asked = victim.read_as()
        if isinstance(asked, HttpVictim):
            asked.cache = None  # each row is sent
        return cls(asked, batch[rows], batch[others] if others else None)

    def raw(self, x: Tensor) -> Tensor:
        """x: (b, c, *size) with any values -> the model's own outputs (b, k); probabilities if it returns labels."""
        if self.victim.reading.tells_labels:
            return self.victim.probabilities(self.scores(x))
        return self.victim.read_as(bounds=UNBOUNDED, outputs="logits", multilabel=True)(x, PHASE)

    def scores(self, x: Tensor, layout: Layout | None = None) -> Tensor:
        """x: (b, c, *size) with any values -> scores (b, k); in another layout if one is given."""
        return self.victim.read_as(bounds=UNBOUNDED, layout=layout or self.victim.reading.layout)(x, PHASE)

    @property
    def measure(self) -> str:
        """The mean of `correct`, in words."""
        return "the share of right labels" if self.victim.multilabel else "accuracy"

    def correct(self, scores: Tensor) -> Tensor:
        """(b, k) -> (b,): 1 if the label is predicted, else 0; for several labels their share."""
        if self.victim.multilabel:
            return ((scores > 0) == (self.batch.y > 0)).float().mean(1)
        return ((scores.argmax(1) == self.batch.y) & ~scores.isnan().any(1)).float()

    def guessing(self) -> float:
        """Accuracy of the best answer that ignores the input."""
        y = self.batch.y
        if self.victim.multilabel:
            share = (y > 0).float().mean(0)
            return float(torch.maximum(share, 1 - share).mean())
        return int(y.unique(return_counts=True)[1].max()) / len(y)

    def classes(self) -> int:
        """The number of classes according to the data."""
        return max(2, len(self.batch.classes), int(self.batch.y.max()) + 1)

    def trust(self, scores: Tensor) -> Tensor:
        """(b, k) -> (b,): log-probability of the labels; -inf for NaN."""
        if self.victim.multilabel:
            value = torch.where(self.batch.y > 0, scores, -scores).sigmoid().log().mean(1)
        else:
            value = scores.gather(1, self.batch.y[:, None]).squeeze(1)
        return value.nan_to_num(-math.inf, neginf=-math.inf)


def pick(y: Tensor, samples: int, seed: int) -> list[int]:
    """Rows of as many classes as possible, but two of each, which shows whether they are treated alike."""
    if samples < 1:
        raise InputError(f"expected at least 1 sample to examine, got {samples}")
    order = torch.randperm(len(y), generator=Generator().manual_seed(seed)).tolist()
    if y.shape[1:]:
        return sorted(order[:samples])
    groups: dict[int, list[int]] = {}
    for row in order:
        groups.setdefault(int(y[row]), []).append(row)
    classes, pairs = list(groups.values()), max(1, samples // 2)
    turns = chain(chain.from_iterable(zip_longest(*classes[:pairs])), chain.from_iterable(classes[pairs:]))
    return sorted([row for row in turns if row is not None][:samples])
