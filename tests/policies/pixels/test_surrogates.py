"""Directions of surrogates: blurred over frames by a Gaussian that mirrors at their edges; steps too short for eight bits."""

from __future__ import annotations

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

import rlab
from rlab.data.batch import Batch
from rlab.policies.pixels.surrogates import blurred
from rlab.victims.torch_module import TorchVictim


def test_directions_are_blurred_over_a_frame_and_not_over_time_or_where_the_width_is_zero() -> None:
    x = torch.randn(2, 2, 3, 4, 12, 16, generator=torch.Generator().manual_seed(0))  # samples, surrogates, clip
    out = blurred(x, torch.tensor([0.0, 1.5]))
    assert torch.equal(out[0], x[0])
    expected = gaussian_filter(x[1].numpy(), (0, 0, 0, 1.5, 1.5), mode="reflect", truncate=6)
    assert np.abs(out[1].numpy() - expected).max() < 1e-2
    assert np.abs(expected).max() > 0.5


def test_a_first_step_that_vanishes_in_rounding_is_followed_by_longer_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    x = (torch.randint(64, 192, (1, 3, 32, 32), generator=generator) / 255).repeat(2, 1, 1, 1)
    x[1, 0, 0, 0] += 1 / 255
    weights = torch.randn(3 * 32 * 32, generator=generator, dtype=torch.float64)
    middle = (x.flatten(1).double() @ weights).mean()

    class Barely(torch.nn.Module):
        """One class on each side of the two images' mean score, from which both are almost nothing away."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            score = x.flatten(1).double() @ weights - middle
            return torch.stack([score, -score], 1).float()

    victim = TorchVictim(Barely(), outputs="logits")
    batch = Batch(x, victim(x).argmax(1), eight_bit=True)
    result = rlab.attack(victim, batch, palette="pixels", surrogate=victim, budget=30)
    assert result.succeeded.all()
    assert (result.queries <= 30).all()
