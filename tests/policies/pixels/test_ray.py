"""A search by scores that starts along a trained prior's direction, on models whose nearest flips are known."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor, nn

from rlab.core.goals import Goal
from rlab.data.batch import Batch
from rlab.policies.pixels import PixelPolicy
from rlab.priors.base import NoPrior, Prior
from rlab.results.result import AttackResult
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims.torch_module import TorchVictim

SHAPE = (3, 8, 8)


class Plane(nn.Module):
    """Two classes on either side of a plane, at a distance of 0.8 from the grey image."""

    def __init__(self, normal: Tensor) -> None:
        super().__init__()
        self.normal = normal

    def forward(self, x: Tensor) -> Tensor:
        depth = 0.8 - ((x - 0.5) * self.normal).flatten(1).sum(1)
        return torch.stack([depth, -depth], 1)


@dataclass(frozen=True)
class Fixed(Prior):
    direction: Tensor  # (*shape)

    def directions(self, x: Tensor, y: Tensor, scale: Tensor, goal: Goal) -> Tensor:
        return self.direction.expand(len(x), 1, *self.direction.shape)


def attacked(prior: Prior, budget: int = 400, shape: tuple[int, ...] = SHAPE) -> AttackResult:
    normal = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    normal = normal / normal.norm()
    batch = Batch(torch.full((2, *shape), 0.5), torch.zeros(2, dtype=torch.int64))
    attack = make_attack(batch, palette="pixels", budget=budget, until="budget", quantize=False)
    assert isinstance(attack.policy, PixelPolicy)
    attack = replace(attack, policy=replace(attack.policy, opening=prior))
    return run_attack(attack, TorchVictim(Plane(normal), outputs="logits"), batch)


def normal_of(shape: tuple[int, ...] = SHAPE) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def test_the_right_direction_flips_within_three_queries_at_the_boundary() -> None:
    result = attacked(Fixed(normal_of()), 12)
    assert (result.best_within(4) < 1.2).all()
    assert result.best_within(12).tolist() == pytest.approx([0.8, 0.8], abs=0.05)


def test_a_direction_half_right_is_left_for_the_right_one() -> None:
    other = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1))
    half = normal_of() / normal_of().norm() + other / other.norm()
    result = attacked(Fixed(half), 400)
    assert (result.best_within(6) < 0.8 * 2).all()
    assert result.best_within(400).tolist() == pytest.approx([0.8, 0.8], abs=0.05)


@pytest.mark.slow
def test_a_wrong_direction_costs_eight_queries_at_most() -> None:
    away, none = (attacked(prior).best_within(400) for prior in (Fixed(-normal_of()), NoPrior()))
    assert away.tolist() == pytest.approx(none.tolist(), rel=0.1)


def test_signals_do_not_follow_a_prior() -> None:
    shape = (1, 64)
    with_prior, without = (attacked(prior, 60, shape) for prior in (Fixed(normal_of(shape)), NoPrior()))
    assert with_prior.improvements == without.improvements
