"""Values that 8 bits can hold, as in the pixels of a PNG or a video frame."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlab.errors import DataError
from rlab.storage.config import Bounds

LEVELS = 256


def to_float(x: NDArray[np.generic], bounds: Bounds) -> Tensor:
    """Convert to float32. uint8 values 0..255 are scaled to finite bounds, so (0, 1) divides by 255."""
    if x.dtype.kind not in "iuf":
        raise DataError(f"expected numeric inputs, got {x.dtype}: convert them to float32")
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, which `Batch` refuses
        values = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    if not holds_bytes(x.dtype, bounds) or bounds == (0.0, 255.0):
        return values
    scaled = values.div_(255)
    return scaled if bounds == (0.0, 1.0) else scaled.mul_(bounds[1] - bounds[0]).add_(bounds[0]).clamp_(*bounds)


def holds_bytes(dtype: np.dtype[np.generic], bounds: Bounds) -> bool:
    """Whether `to_float` gives values that 8 bits can hold."""
    return dtype == np.uint8 and finite(bounds)


def finite(bounds: Bounds) -> bool:
    return math.isfinite(bounds[1] - bounds[0])


def to_bytes(x: Tensor, bounds: Bounds) -> Tensor:
    """Values in finite bounds -> uint8."""
    return ((x - bounds[0]) / (bounds[1] - bounds[0]) * 255).round().clamp(0, 255).to(torch.uint8)


@dataclass(frozen=True)
class EightBit:
    """Rounds values in finite bounds to 8 bits; a table gives the same values on every device as a loader does."""

    bounds: Bounds

    def __call__(self, x: Tensor) -> Tensor:
        table = to_float(np.arange(LEVELS, dtype=np.uint8), self.bounds).to(x)
        return table[to_bytes(x, self.bounds).long()]
