"""Realistic inputs, and every filter with each rank it supports."""

from __future__ import annotations

import math

import torch
from torch import Generator, Tensor, nn

from rlab.filters import FAMILIES, Filter
from rlab.priors.gradients import gradient_filters
from rlab.priors.surrogates import SurrogatePrior
from rlab.victims import TorchVictim

CHANNELS = {1: 2, 2: 3, 3: 3}
RANKS = (1, 2, 3)


class Waves(nn.Module):
    """Three classes by fixed waves over all values: a surrogate for inputs of any size."""

    def forward(self, x: Tensor) -> Tensor:
        flat = x.flatten(1)
        place = torch.arange(flat.shape[1], device=x.device)
        return torch.stack([flat @ torch.sin(1 + (1 + k) * place) for k in range(3)], 1)


def surrogates(bounds: tuple[float, float] = (0.0, 1.0)) -> SurrogatePrior:
    return SurrogatePrior([TorchVictim(Waves(), outputs="logits", bounds=bounds)], ("waves",))


def all_filters(channels: int) -> list[Filter]:
    built_in = [one for family in FAMILIES.values() for one in family(channels)]
    return [*built_in, *gradient_filters(surrogates(), (0.0, 1.0)).values()]


# Built on import, so that filters registered by a test do not appear.
# Of the common corruptions, which change clips frame by frame, one runs on clips.
ALL_FILTERS = [
    (one, rank)
    for rank in RANKS
    for one in all_filters(CHANNELS[rank])
    if rank in one.ranks and (rank == 2 or not one.levels or one.name == "c_snow" or 2 not in one.ranks)
]
NAMES = [f"{one.name}-{rank}d" for one, rank in ALL_FILTERS]


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def signals() -> Tensor:
    """(3, 2, 720): two seconds of beats and a T wave, in [0, 1]."""
    time = torch.arange(720) / 360
    rows = []
    for start in (0.1, 0.25, 0.3):
        beat = (time - start) % 0.8
        lead = torch.exp(-(((beat - 0.1) / 0.015) ** 2)) + 0.25 * torch.exp(-(((beat - 0.35) / 0.05) ** 2))
        rows.append(torch.stack([0.3 + 0.5 * lead, 0.6 - 0.3 * lead]))
    return torch.stack(rows)


def images() -> Tensor:
    """(3, 3, 32, 32): a disc before a gradient and grain, in [0, 1]."""
    row, column = torch.meshgrid(torch.linspace(0, 1, 32), torch.linspace(0, 1, 32), indexing="ij")
    tints = torch.tensor([[0.9, 0.4, 0.2], [0.2, 0.8, 0.5], [0.3, 0.3, 0.9]])
    grain = 0.1 * torch.rand((3, 3, 32, 32), generator=seeded(7))
    discs = torch.stack([((row - at) ** 2 + (column - 0.5) ** 2 < 0.06).float() for at in (0.3, 0.5, 0.7)])
    return 0.05 + 0.3 * row + 0.5 * discs[:, None] * tints[:, :, None, None] + grain


def clips() -> Tensor:
    """(2, 3, 12, 16, 16): a blob that moves across, in [0, 1]."""
    row, column = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    frames = [torch.exp(-((row - 8) ** 2 + (column - 2 - t) ** 2) / 8) for t in range(12)]
    grey = torch.stack(frames)
    return torch.stack([0.1 + 0.8 * torch.stack([grey, 0.5 * grey, g]) for g in (0.2 * grey, 0.9 * grey)])


def inputs(rank: int) -> Tensor:
    return {1: signals, 2: images, 3: clips}[rank]()


def millivolts() -> Tensor:
    """(3, 2, 720) without bounds: the same beats in millivolts, with an offset."""
    return 4 * signals() - math.pi
