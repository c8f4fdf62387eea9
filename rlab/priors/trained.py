"""The trained direction prior: guesses from an input alone in which directions a model's margin falls fastest.

    directions: (n, c, *size) -> (n, heads, c, *size), each of unit length

Models of the same task share many weaknesses. The prior learns them once, from the gradients of training models
(`rlab.training.directions`), and costs no query in an attack: the change of a palette entry at a patch, projected on a direction,
shows how promising it is (`projection`). A U-Net (https://arxiv.org/abs/1505.04597) of any rank with several heads, because models
differ.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlab.core.goals import Goal
from rlab.core.grid import PatchGrid
from rlab.core.vectors import unit, wide
from rlab.data.kinds import KINDS, kind_of
from rlab.errors import ModelError
from rlab.priors.base import Prior

CONV: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_POOL: dict[int, Any] = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


class Block(nn.Module):
    """Residual, with a term from the whole input so that distant points influence each other."""

    def __init__(self, conv: Any, width: int) -> None:
        super().__init__()
        self.near = nn.Sequential(
            nn.GroupNorm(8, width), nn.SiLU(), conv(width, width, 3, padding=1),
            nn.GroupNorm(8, width), nn.SiLU(), conv(width, width, 3, padding=1),
        )  # fmt: skip
        self.far = nn.Linear(width, width)

    def forward(self, h: Tensor) -> Tensor:
        return h + self.near(h) + wide(self.far(F.silu(h.flatten(2).mean(2))), h)


class DirectionPrior(nn.Module):
    """Reduces the input `shrink` times first; the U-Net then halves it `levels` times."""

    def __init__(self, rank: int, channels: int, width: int, heads: int, levels: int = 3, shrink: int = 1) -> None:
        super().__init__()
        conv = CONV[rank]
        self.rank, self.channels, self.width = rank, channels, width
        self.heads, self.levels, self.shrink = heads, levels, shrink
        widths = [width * 2 ** min(level, 2) for level in range(levels + 1)]
        self.first = conv(2 * channels, width, 3, padding=1)
        self.down = nn.ModuleList(Block(conv, w) for w in widths)
        self.halve = nn.ModuleList(conv(a, b, 3, stride=2, padding=1) for a, b in pairwise(widths))
        self.widen = nn.ModuleList(conv(b, a, 1) for a, b in pairwise(widths))
        self.up = nn.ModuleList(Block(conv, w) for w in widths[:-1])
        self.last = conv(width, heads * channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """x (n, c, *size) in units of one -> (n, heads, c, *size)."""
        size = x.shape[2:]
        h = self.first(torch.cat(_both(self._shrunk(x)), 1))
        kept = []
        for level, block in enumerate(self.down):
            h = block(h)
            if level < self.levels:
                kept.append(h)
                h = self.halve[level](h)
        for level in reversed(range(self.levels)):
            h = F.interpolate(self.widen[level](h), scale_factor=2, mode="nearest") + kept[level]
            h = self.up[level](h)
        out = self.last(h).float()
        if self.shrink > 1:
            out = F.interpolate(out, scale_factor=self.shrink, mode="nearest")
        whole: Any = (..., *(slice(0, length) for length in size))
        return unit(out[whole].unflatten(1, (self.heads, self.channels)), 2)

    def _shrunk(self, x: Tensor) -> Tensor:
        """Reduced, and padded so that it can be halved `levels` times."""
        step = self.shrink * 2**self.levels
        gaps = [-length % step for length in x.shape[2:]]
        if any(gaps):
            x = F.pad(x, [n for gap in reversed(gaps) for n in (0, gap)], mode="replicate")
        return x if self.shrink == 1 else _POOL[self.rank](x, self.shrink)


def _both(x: Tensor) -> tuple[Tensor, Tensor]:
    """The values themselves, and standardised."""
    flat = x.flatten(1)
    return x, (x - wide(flat.mean(1), x)) / wide(flat.std(1).clamp(min=1e-4), x)


def projection(directions: Tensor, change: Tensor, grid: PatchGrid) -> Tensor:
    """directions (n, k, c, *size), change (n, f, c, *size) -> (n, f, k, p): how far each change goes along each."""
    parts = [grid.collect(change * directions[:, k, None]) for k in range(directions.shape[1])]
    return torch.stack(parts, 2)


@dataclass(frozen=True)
class TrainedPrior(Prior):
    """A network trained on other models of the same kind of data."""

    network: DirectionPrior = field(repr=False)
    name: str = "trained"

    def __str__(self) -> str:
        return self.name

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether it was trained for inputs of this shape (c, *size): their kind and number of channels."""
        return (self.network.rank, self.network.channels) == (len(shape) - 1, shape[0])

    def suited(self, shape: tuple[int, ...]) -> TrainedPrior:
        if not self.fits(shape):
            network = self.network
            raise ModelError(
                f"the prior {self.name!r} was trained for {KINDS[network.rank - 1]} data with {network.channels} channels, but "
                f"these are {kind_of(shape[1:])} data with {shape[0]}: leave it out or train one for them"
            )
        return self

    @torch.no_grad()
    def directions(self, x: Tensor, y: Tensor, scale: Tensor, goal: Goal) -> Tensor:
        self.suited(tuple(x.shape[1:]))
        self.network.eval().to(x.device)
        return torch.cat([self.network(part) for part in (x / wide(scale, x)).split(64)])
