"""Pixel values as colours."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def to_colours(values: Array) -> Array:
    """(c, *size) -> (*size, 3): three channels are RGB; any other number is shown as their mean in grey."""
    shown = values if len(values) == 3 else values.mean(0, keepdims=True).repeat(3, 0)
    return np.moveaxis(shown, 0, -1)


def value_range(bounds: tuple[float, float], *values: Array) -> tuple[float, float]:
    """The bounds, or the common range of the values if there are none."""
    if math.isfinite(bounds[1] - bounds[0]):
        return bounds
    return min(float(part.min()) for part in values), max(float(part.max()) for part in values)


def scaled(values: Array, ends: tuple[float, float]) -> Array:
    """Values scaled from `ends` to [0, 1]."""
    low, high = ends
    return ((values - low) / ((high - low) or 1.0)).clip(0, 1)
