"""What the training commands share."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def half(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights in half precision, on the CPU."""
    return {k: (v.half() if v.is_floating_point() else v).cpu().contiguous() for k, v in weights.items()}
