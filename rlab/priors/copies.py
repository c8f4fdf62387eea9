"""Copies of a picture that a model should read alike: moved by one value, or mirrored.

A gradient averaged over copies depends less on the model at hand and transfers better to others
(Xie et al. 2019, https://arxiv.org/abs/1803.06978; Dong et al. 2019, https://arxiv.org/abs/1904.02884).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.vectors import unit, wide
from rlab.data.kinds import Kind

BEYOND_CHANCE = 4.0  # standard deviations of the cosine of two random vectors
_MOVES = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))


@dataclass(frozen=True)
class Copy:
    """Of pictures (n, c, ..., h, w): rolled down and right, then mirrored left to right; only where `allowed` (n,) bool."""

    move: tuple[int, int] = (0, 0)
    mirrored: bool = False

    def make(self, x: Tensor, allowed: Tensor) -> Tensor:
        if self == ITSELF:
            return x
        moved = torch.roll(x, self.move, (-2, -1))
        return torch.where(wide(allowed, x), moved.flip(-1) if self.mirrored else moved, x)

    def undo(self, x: Tensor, allowed: Tensor) -> Tensor:
        if self == ITSELF:
            return x
        down, right = self.move
        back = torch.roll(x.flip(-1) if self.mirrored else x, (-down, -right), (-2, -1))
        return torch.where(wide(allowed, x), back, x)


ITSELF, MIRRORED, MOVED = Copy(), Copy(mirrored=True), Copy((1, 0))


def agree(one: Tensor, other: Tensor) -> Tensor:
    """Vectors (n, ...) -> (n,) bool: whether they agree more than random vectors would."""
    cosine = (unit(one) * unit(other)).flatten(1).sum(1)
    return cosine > BEYOND_CHANCE / math.sqrt(one[0].numel())


def moved_copies(kind: Kind) -> tuple[Copy, ...]:
    """Ten copies of an image or clip, each move with its mirror image; a signal has only itself."""
    if kind == "signal":
        return (ITSELF,)
    return tuple(Copy(move, mirrored) for move in _MOVES for mirrored in (False, True))
