"""Copies of a picture that a model should read alike: moved by a value, or mirrored.

A gradient averaged over them is less of the model at hand and more of what its data have in common with other models
(Xie et al. 2019, https://arxiv.org/abs/1803.06978; Dong et al. 2019, https://arxiv.org/abs/1904.02884).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from rlab.core.vectors import unit, wide

BEYOND_CHANCE = 4.0  # standard deviations of the cosine of two random vectors
_MOVES = ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1))


@dataclass(frozen=True)
class Copy:
    """Of pictures (n, c, ..., h, w): moved down and right, what leaves at one edge coming in at the other, then mirrored left
    to right; only where `allowed` (n,) bool, the others stay as they are."""

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
    """Vectors (n, ...) -> (n,) bool: whether the angle between them is less than chance would leave."""
    cosine = (unit(one) * unit(other)).flatten(1).sum(1)
    return cosine > BEYOND_CHANCE / math.sqrt(one[0].numel())


def moved_copies(rank: int) -> tuple[Copy, ...]:
    """Ten of a picture or clip, each move with its mirror image; of a signal, itself."""
    return tuple(Copy(move, mirrored) for move in _MOVES for mirrored in (False, True)) if rank > 1 else (ITSELF,)
