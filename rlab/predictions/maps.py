"""Maps of classes as rows of fixed width: the class at regularly spaced points of the input."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

IGNORED = -1  # class of a point whose class is unknown
_POINTS = 128**2  # most points of one map


def sampled(size: Sequence[int]) -> tuple[int, ...]:
    """The size of the map that is kept for inputs of this size: at most 128 x 128 points of an image."""
    most = math.floor(_POINTS ** (1 / len(size)) + 1e-6)
    return tuple(min(length, most) for length in size)


def encode_map(classes: Tensor, size: Sequence[int]) -> Tensor:
    """Classes (n, *any size) of a map over inputs of `size` -> rows (n, points), read at the middle of each cell."""
    rows = classes
    for axis, count in enumerate(sampled(size), start=1):
        length = rows.shape[axis]
        rows = rows.index_select(axis, ((2 * torch.arange(count, device=rows.device) + 1) * length) // (2 * count))
    return rows.flatten(1)


def decode_map(rows: Tensor, size: Sequence[int]) -> Tensor:
    """Rows (n, points) -> classes (n, *sampled(size)) int64."""
    return rows.nan_to_num(float(IGNORED)).long().view(len(rows), *sampled(size))
