"""What one attack did to each sample, in the same terms for every attack, ours and others'."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rlab.data.batch import Batch
from rlab.victims.base import Victim


@dataclass(frozen=True)
class AttackOutcome:
    """One entry a sample. `queries` are the rows of search and cleanup up to the end of the sample's attack."""

    attacked: Tensor  # (n,) bool: the model had it right to begin with
    succeeded: Tensor  # (n,) bool, predicted once more from the perturbed input
    queries: Tensor  # (n,) int64
    l2: Tensor  # (n,) float in the data's [0, 1]; NaN where it did not succeed
    budget: int
    rows: int  # every row that reached the model, verification and rows sent after the flip included
    seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.attacked)

    @property
    def charged(self) -> Tensor:
        """(n,) queries, where a sample that was not flipped counts as the whole budget."""
        return torch.where(self.succeeded, self.queries, self.budget)

    def first(self, samples: int) -> AttackOutcome:
        """The same of the first `samples`; `rows` stay those of all."""
        columns = {name: getattr(self, name)[:samples] for name in ("attacked", "succeeded", "queries", "l2")}
        return replace(self, **columns)

    def plain(self) -> dict[str, Any]:
        """As plain values, fit for JSON, which knows no NaN."""
        return {
            "attacked": self.attacked.int().tolist(),
            "succeeded": self.succeeded.int().tolist(),
            "queries": self.queries.tolist(),
            "l2": [None if math.isnan(distance) else round(distance, 5) for distance in self.l2.tolist()],
            "budget": self.budget,
            "rows": self.rows,
            "seconds": round(self.seconds, 1),
        }

    @classmethod
    def from_plain(cls, values: Mapping[str, Any]) -> AttackOutcome:
        return cls(
            attacked=torch.tensor(values["attacked"], dtype=torch.bool),
            succeeded=torch.tensor(values["succeeded"], dtype=torch.bool),
            queries=torch.tensor(values["queries"], dtype=torch.int64),
            l2=torch.tensor([math.nan if v is None else v for v in values["l2"]], dtype=torch.float64),
            budget=int(values["budget"]),
            rows=int(values["rows"]),
            seconds=float(values["seconds"]),
        )


class Contender(ABC):
    """An attack that can be compared: any that flips as many samples as it can within a budget of queries a sample."""

    @abstractmethod
    def __call__(self, victim: Victim, batch: Batch, budget: int, seed: int) -> AttackOutcome:
        """Attacks every sample the victim has right; no more than `budget` rows of each count."""
