"""Directions of surrogates: steps that vanish in eight bits, and steps that must grow after misses."""

from __future__ import annotations

import torch

import rlab
from rlab.data.batch import Batch
from rlab.victims.torch_module import TorchVictim


class Ball(torch.nn.Module):
    """Two classes: inputs within `radius` of `centre`, and others; scores fall with the fourth power of the distance."""

    def __init__(self, centre: torch.Tensor, radius: float) -> None:
        super().__init__()
        self.centre, self.radius = centre, radius

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inside = 1 - ((x - self.centre).flatten(1).norm(dim=1) / self.radius) ** 4
        return torch.stack([inside, -inside], 1)


class Plane(torch.nn.Module):
    """Two classes on the two sides of a plane, close to `centre`."""

    def __init__(self, centre: torch.Tensor) -> None:
        super().__init__()
        self.centre = centre
        self.normal = torch.randn(centre.shape, generator=torch.Generator().manual_seed(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        side = 0.2 + ((x - self.centre) * self.normal).flatten(1).sum(1) / self.normal.norm()
        return torch.stack([side, -side], 1)


def test_a_victim_far_more_robust_than_its_surrogate_flips_after_few_misses() -> None:
    x = torch.full((1, 3, 32, 32), 0.5)
    victim, surrogate = (TorchVictim(net, outputs="logits") for net in (Ball(x, 6.0), Plane(x)))
    result = rlab.attack(victim, Batch(x, torch.tensor([0])), palette="pixels", surrogate=surrogate, budget=30)
    assert torch.isfinite(result.best_within(4)).all()  # the surrogate flips at a distance of 0.2


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
