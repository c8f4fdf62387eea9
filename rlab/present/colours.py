"""Pixel values as colours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]


def to_colours(values: Array) -> Array:
    """(c, *size) -> (*size, 3): three channels are RGB; any other number is shown as their mean in grey."""
    shown = values if len(values) == 3 else values.mean(0, keepdims=True).repeat(3, 0)
    return np.moveaxis(shown, 0, -1)
