"""A model, images and outcomes whose comparison can be computed by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

import rlab
from rlab.comparison import ATTACKS, AttackOutcome, Contender
from rlab.comparison.libraries import LibraryAttack
from rlab.comparison.recorder import QueryRecorder
from rlab.data.batch import Batch
from rlab.progress import Progress, quiet
from rlab.victims.torch_module import TorchVictim


class Brightness(nn.Module):
    """Class 1 once the mean is above 0.5: (b, c, h, w) -> (b, 2)."""

    def forward(self, x: Tensor) -> Tensor:
        over = 100 * (x.flatten(1).mean(1) - 0.5)
        return torch.stack([-over, over], 1)


def bright() -> TorchVictim:
    return TorchVictim(Brightness(), outputs="logits")


def greys(*levels: float) -> Batch:
    """One 1x4x4 image per level, each with a distinct pattern of mean zero; all are labelled dark."""
    patterns = torch.stack([torch.eye(4).roll(i, 1) for i in range(4)]) - 0.25
    x = torch.stack([level + 0.4 * patterns[i] for i, level in enumerate(levels)])[:, None]
    return Batch(x, torch.zeros(len(levels), dtype=torch.int64))


def outcome(queries: Sequence[float], l2: Sequence[float | None], budget: int = 100) -> AttackOutcome:
    """An outcome in which None as the distance is a failure."""
    return AttackOutcome(
        attacked=torch.ones(len(queries), dtype=torch.bool),
        succeeded=torch.tensor([v is not None for v in l2]),
        queries=torch.tensor(queries, dtype=torch.int64),
        l2=torch.tensor([math.nan if v is None else v for v in l2], dtype=torch.float64),
        budget=budget,
        rows=int(sum(queries)),
    )


class Fixed(Contender):
    """An attack with a known outcome; counts its calls."""

    def __init__(self, known: AttackOutcome) -> None:
        self.known, self.calls = known, 0

    def __call__(
        self, victim: rlab.Victim, batch: Batch, budget: int, seed: int, progress: Progress = quiet
    ) -> AttackOutcome:
        self.calls += 1
        return self.known


PLANTED = "art:planted"  # an attack of another library


def noise(recorder: QueryRecorder, strength: float) -> None:
    """One query after the other, until the recorder has enough."""
    while True:
        recorder((recorder.x + strength * torch.randn_like(recorder.x)).clamp(0, 1))


def own_noise(recorder: QueryRecorder, rows: Tensor) -> None:
    """The same as a function of a user."""
    noise(recorder, 1.0)


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add an attack to those of a library, which is then not needed."""
    monkeypatch.setitem(ATTACKS, PLANTED, LibraryAttack(noise, 1.0))
    monkeypatch.setattr("rlab.comparison.libraries.load_library", lambda library: None)
