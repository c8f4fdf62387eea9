"""Directions to probe: the cosine basis over channels and all axes, in frequency bands, and random directions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from rlab.core.env import State
from rlab.core.rng import normal, uniform
from rlab.data.kinds import Kind

COLOUR = 0.03  # power of the differences between channels, relative to that of their mean
CENTRE = 0.5  # how much weaker noise is at the edge


@dataclass(frozen=True)
class Basis:
    """The d orthonormal cosines over inputs (c, *size), computed when needed: all at once would not fit in memory."""

    shape: tuple[int, ...]  # (c, *size)
    band: Tensor  # (d,) int64: half octaves from high to low, first of the channels' mean, then of their differences
    order: Tensor  # (d,) a fixed shuffle: no frequency of a band comes first

    @property
    def bands(self) -> int:
        return int(self.band.max()) + 1

    def vectors(self, index: Tensor) -> Tensor:
        """(n,) -> (n, c, *size), each of length 1."""
        out = torch.ones(len(index), *(1,) * len(self.shape), device=index.device)
        for axis in reversed(range(len(self.shape))):
            length = self.shape[axis]
            at, index = index % length, index // length
            wave = cosines(length, index.device)[at]
            out = out * wave.view(-1, *(length if other == axis else 1 for other in range(len(self.shape))))
        return out


@cache
def cosines(length: int, device: torch.device) -> Tensor:
    """(length, length): the orthonormal DCT-II, one row per frequency."""
    k = torch.arange(length, dtype=torch.float64)
    rows = torch.cos(math.pi * (k + 0.5) * k[:, None] / length) * math.sqrt(2 / length)
    rows[0] /= math.sqrt(2)
    return rows.float().to(device)


@cache
def make_basis(shape: tuple[int, ...], device: torch.device) -> Basis:
    axes: Sequence[Tensor] = [torch.arange(length, dtype=torch.float32) for length in shape]
    place = torch.meshgrid(*axes, indexing="ij")
    frequency = torch.stack([along.square() for along in place[1:]]).sum(0).sqrt()
    octave = (2 * torch.log2(1 + frequency)).floor().long()
    band = int(octave.max()) - octave + (int(octave.max()) + 1) * (place[0] > 0)
    order = torch.randperm(band.numel(), generator=torch.Generator().manual_seed(0))
    used = band.flatten().unique(return_inverse=True)[1]
    return Basis(shape, used.to(device), order.to(device))


def white_noise(state: State) -> Tensor:
    """(n, c, *size)"""
    count = state.x0[0].numel()
    return normal(uniform(state.seed, state.step, count + count % 2))[:, :count].view_as(state.x0)


def shaped_noise(state: State, kind: Kind) -> Tensor:
    """(n, c, *size): white; for images of high frequency, alike in all channels and stronger in the middle, because there the
    gradients of networks are large."""
    white = white_noise(state)
    if kind != "image":
        return white
    channels, size = white.shape[1], white.shape[2:]
    along = [torch.arange(length, device=white.device) / length for length in size]
    power = along[0].square()[:, None] + along[1].square()
    shade = torch.where(torch.arange(channels, device=white.device)[:, None, None] > 0, COLOUR * power.mean(), power)
    mix, rows, columns = (cosines(length, white.device) for length in (channels, *size))
    shaped = rows.T @ (white * shade.sqrt()) @ columns
    off = [torch.linspace(-1, 1, length, device=white.device) for length in size]
    inner = (-CENTRE * (off[0].square()[:, None] + off[1].square())).exp()
    return (mix.T @ shaped.flatten(2)).view_as(white) * inner
