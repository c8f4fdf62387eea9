"""Inputs and perturbations as vectors: their lengths, and each divided by its own."""

from __future__ import annotations

from torch import Tensor


def lengths(x: Tensor, leading: int = 1) -> Tensor:
    """L2 over all axes but the `leading` ones."""
    return x.flatten(leading).norm(dim=leading)


def unit(x: Tensor, leading: int = 1) -> Tensor:
    """Each of length one; zero stays zero."""
    return x / wide(lengths(x, leading).clamp(min=1e-12), x)


def wide(values: Tensor, like: Tensor) -> Tensor:
    """(n, ...) with as many axes as `like`, the new ones last: to be multiplied with it."""
    return values.view(*values.shape, *(1,) * (like.dim() - values.dim()))
