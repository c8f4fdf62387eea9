"""What is shown where an input is hidden: its mean, or the input under a strong filter, by default a wide blur."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from rlab.errors import InputError
from rlab.filters.palette import Palette

SHARE, LEAST = 16, 4.0  # the blur's standard deviation is this part of the longest axis, and no fewer points than this


def mean_fill(x0: Tensor) -> Tensor:
    """(n, c, *size) -> (n, c, 1, ...): each sample's own mean by channel."""
    return x0.flatten(2).mean(2).view(*x0.shape[:2], *(1,) * (x0.dim() - 2))


def hiding_filter(size: tuple[int, ...]) -> str:
    """The filter where none is named."""
    return f"gaussian_blur@{max(LEAST, max(size) / SHARE):g}"


def hiding_bank(x0: Tensor, bounds: tuple[float, float], seeds: Sequence[int], spec: str | None = None) -> Tensor:
    """x0 (n, c, *size) -> (n, 2, c, *size): the input, and the input with everything hidden."""
    size = tuple(x0.shape[2:])
    palette = Palette.of([spec or hiding_filter(size)], len(size), x0.shape[1])
    if len(palette) != 1:
        raise InputError(f"expected one filter at one severity to hide patches with, got {', '.join(palette.names)}")
    return palette.bank(x0, bounds, seeds)
