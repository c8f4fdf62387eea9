"""What a search over a chunk of samples has found."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.env import State
from rlab.core.setting import Setting
from rlab.core.status import Status
from rlab.core.trace import Trace
from rlab.data.batch import Batch
from rlab.victims.meter import QueryMeter


@dataclass(frozen=True)
class SearchOutcome:
    """The outcome of a search over a chunk of n samples."""

    batch: Batch
    setting: Setting
    meter: QueryMeter
    seeds: Tensor  # (n,)
    clean: Tensor  # (n, k) scores of the untouched inputs
    scores: Tensor  # (n, k) scores of the perturbed inputs
    status: tuple[Status, ...]
    trace: Trace
    assignment: Tensor  # (n, p) uint8
    perturbed: Tensor  # (n, c, *size)
    stored: Tensor  # (n, c, *size) the perturbed inputs as they were read back from where they were stored
    flipped: State | None  # the flipped rows after cleanup; None if no sample was attacked

    @property
    def rows(self) -> Tensor:
        """Indices of the flipped samples."""
        return torch.arange(0) if self.flipped is None else self.flipped.sample.cpu()
