"""Inputs and perturbations as vectors: lengths and unit vectors."""

from __future__ import annotations

from torch import Tensor


def lengths(x: Tensor, leading: int = 1) -> Tensor:
    """L2 norm over all axes after the first `leading` ones."""
    return x.flatten(leading).norm(dim=leading)


def unit(x: Tensor, leading: int = 1) -> Tensor:
    """Scale each vector to length one; zero stays zero."""
    return x / wide(lengths(x, leading).clamp(min=1e-12), x)


def wide(values: Tensor, like: Tensor) -> Tensor:
    """Append axes of length one to (n, ...) until it broadcasts with `like`."""
    return values.view(*values.shape, *(1,) * (like.dim() - values.dim()))
