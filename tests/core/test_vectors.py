"""A Cholesky factor tells where there is none, whichever LAPACK library torch was built with."""

from __future__ import annotations

import torch

from rlab.core.vectors import cholesky


def test_only_finite_positive_definite_matrices_have_a_factor() -> None:
    half = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    good = half @ half.T + torch.eye(3)
    negative, missing, hidden = -good, torch.full_like(good, torch.nan), good.clone()
    hidden[2, 0] = hidden[0, 2] = torch.nan
    root, solved = cholesky(torch.stack([good, negative, missing, hidden, 2 * good]))
    assert solved.tolist() == [True, False, False, False, True]
    torch.testing.assert_close(root[0] @ root[0].T, good)
    torch.testing.assert_close(root[0].triu(1), torch.zeros(3, 3, dtype=torch.float64))
