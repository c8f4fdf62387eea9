"""Directions of surrogates on clips: blurred like a picture by a Gaussian that mirrors at its edges, frame by frame."""

from __future__ import annotations

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from rlab.policies.pixels.surrogates import blurred


def test_directions_are_blurred_over_a_frame_and_not_over_time_or_where_the_width_is_zero() -> None:
    x = torch.randn(2, 2, 3, 4, 12, 16, generator=torch.Generator().manual_seed(0))  # samples, surrogates, clip
    out = blurred(x, torch.tensor([0.0, 1.5]))
    assert torch.equal(out[0], x[0])
    expected = gaussian_filter(x[1].numpy(), (0, 0, 0, 1.5, 1.5), mode="reflect", truncate=6)
    assert np.abs(out[1].numpy() - expected).max() < 1e-2
    assert np.abs(expected).max() > 0.5
