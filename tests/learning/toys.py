"""Victims that students can learn in a second: linear in smooth features, with known answers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import torch
from torch import Tensor, nn

from rlab.data.batch import Batch
from rlab.learning import distil
from rlab.learning.answers import Answers
from rlab.learning.distil import agreement
from rlab.learning.simulator import Simulator
from rlab.learning.students import WIDTHS
from rlab.victims.torch_module import TorchVictim
from tests.helpers import CHANNELS, CLASSES, SIZES

CPU = torch.device("cpu")


@contextmanager
def small_students(steps: int = 40, width: int = 8) -> Iterator[None]:
    """Students that train at once, for tests of what surrounds them."""
    with (
        mock.patch.dict(WIDTHS, dict.fromkeys(WIDTHS, width)),
        mock.patch.multiple(distil, FEWEST_STEPS=steps, MOST_STEPS=steps, BATCH=32, LEARNING_RATE=1e-2),
    ):
        yield


class LinearNet(nn.Module):
    """A linear model: the mean of the first channel decides between the classes."""

    def __init__(self, multilabel: bool = False) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor([-60.0, 0.0, 60.0]))
        self.bias = nn.Parameter(
            torch.tensor([28.0, 0.0, -32.0]) if not multilabel else torch.tensor([30.0, 1.0, -30.0])
        )

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0].flatten(1).mean(1, keepdim=True) * self.slope + self.bias


def linear_victim(multilabel: bool = False, labels: bool = False) -> TorchVictim:
    if labels:
        return TorchVictim(LinearNet(multilabel), multilabel=multilabel, outputs="labels", classes=CLASSES)
    return TorchVictim(LinearNet(multilabel), multilabel=multilabel, outputs="logits")


def bright_batch(rank: int, n: int, seed: int = 0) -> Batch:
    """Inputs whose brightness is drawn from 0.25 to 0.75, so that all three classes come up."""
    draw = torch.Generator().manual_seed(seed)
    level = 0.25 + 0.5 * torch.rand(n, *(1,) * (1 + rank), generator=draw)
    x = level + 0.2 * (torch.rand(n, CHANNELS[rank], *SIZES[rank], generator=draw) - 0.5)
    return Batch(x=x, y=torch.zeros(n, dtype=torch.int64))


def answers_about(victim: TorchVictim, batch: Batch) -> Answers:
    return Answers(batch.x, victim(batch.x, "learn"))


def agreement_of(simulator: Simulator, victim: TorchVictim, batch: Batch) -> float:
    return agreement(simulator.mean_scores(batch.x), victim(batch.x, "learn"), victim.multilabel)
