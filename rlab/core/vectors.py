"""Inputs and perturbations as vectors: lengths, unit vectors and a Cholesky factor that says where it failed."""

from __future__ import annotations

import torch
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


def cholesky(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """(..., n, n) -> its Cholesky factor and (...), whether there is one. Some LAPACK libraries report no error for NaN."""
    root, trouble = torch.linalg.cholesky_ex(matrix)
    return root, (trouble == 0) & root.diagonal(dim1=-2, dim2=-1).isfinite().all(-1)
