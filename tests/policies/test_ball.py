"""What `random` and `square` do after their first flip: every proposal is nearer, and its flips make the ball smaller."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, get_args

import pytest
import torch
from torch import Tensor

from rlab.core.distances import Measure
from rlab.core.env import Accept
from rlab.core.grid import PatchGrid
from rlab.policies.ball import MOST, PATIENCE, restore
from rlab.policies.base import Policy
from rlab.policies.random import Random
from rlab.policies.square import Square
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from tests.helpers import PALETTE, RANKS, exact_victim, labelled_by, make_batch
from tests.policies.states import Walk

POLICIES = [Random(), Square(0.3)]
GRIDS = [PatchGrid((12,), (1,)), PatchGrid((3, 4), (1, 1)), PatchGrid((3, 2, 2), (1, 1, 1))]


def mostly_first(x: Tensor) -> Tensor:
    """Only the first patch has to change; all others help a little."""
    values = x.flatten(1)
    return 3.5 - 3 * values[:, 0] - 0.05 * values.sum(1)


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid.rank}d")
@pytest.mark.parametrize("policy", POLICIES, ids=["random", "square"])
def test_after_the_flip_every_proposal_is_nearer_and_the_best_flip_is_found(
    policy: Policy[Any], grid: PatchGrid
) -> None:
    walk = Walk(policy, grid, mostly_first, n=20, budget=300)
    nearer = 0
    for _ in range(299):
        before = walk.step()
        proposal, flipped = walk.proposals[-1], before.margin < 0
        lengths = proposal.assignment.float().norm(dim=1)  # entry f has the value f
        assert (lengths < MOST * before.distance + 1e-4)[flipped].all()
        assert torch.equal(proposal.rule == Accept.IF_NEARER, flipped)
        nearer += int((flipped & (walk.state.distance < before.distance)).sum())
    assert (walk.state.margin < 0).all()
    assert nearer > len(walk.state)
    assert (walk.state.distance <= 2.5).all()  # 2 on the first patch, and at most two others


def test_a_walk_without_a_gain_starts_again_in_a_larger_ball() -> None:
    """Nothing flips but the first flip, and nothing lowers the margin."""
    walk = Walk(Square(1.0), GRIDS[1], lambda x: (x.flatten(1).amin(1) == 0).float() - 0.5, budget=10_000)
    walk.step()
    for _ in range(3):
        radius = float(walk.memory.radius)
        for _ in range(PATIENCE + 1):
            walk.step()
        assert float(walk.memory.radius) > radius
    assert (walk.state.assignment != 0).all()


def test_patches_are_restored_until_the_rest_fits() -> None:
    """Those that have just moved are restored last, dear ones mostly first."""
    cost = torch.tensor([[[0.0, 0, 0, 0, 0], [9, 1, 1, 1, 0]]]).expand(1000, -1, -1)
    assignment = torch.tensor([[1, 1, 1, 0, 1]]).repeat(1000, 1)
    moved = torch.tensor([[False, True, False, False, False]]).expand(1000, -1)
    chance = torch.rand(1000, 5, generator=torch.Generator().manual_seed(0))
    whole, most, least = (
        restore(assignment, moved, cost, torch.full((1000,), room), chance) for room in (11.0, 3.0, 0.5)
    )
    assert torch.equal(whole, assignment)
    assert (most[:, 1] == 1).all()
    assert (most[:, 0] == 0).all()
    assert 0.05 < float((most[:, 2] == 0).float().mean()) < 0.15  # before the dear patch in one case of ten
    assert (cost[:, 1] * least).sum() == 0


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("name", ["random", "square"])
def test_they_spend_their_budget_and_come_nearer(name: str, rank: int) -> None:
    victim = exact_victim(rank)
    batch = labelled_by(victim, make_batch(rank, 4))
    for distance in get_args(Measure):
        made = make_attack(batch, policy=name, palette=PALETTE, patch=2, budget=60, until="budget", distance=distance)
        result = run_attack(made, victim, batch)
        assert (result.queries.sum(1) == 60).all()
        assert all(a[1] > b[1] for flips in result.improvements for a, b in pairwise(flips))
        assert max(len(flips) for flips in result.improvements) > 1


def test_labels_suffice_if_every_move_is_accepted() -> None:
    victim = exact_victim(2)
    batch = labelled_by(victim, make_batch(2, 6))
    victim = victim.read_as(outputs="labels")
    result = run_attack(
        make_attack(batch, policy="random", accept="always", palette=PALETTE, patch=2, budget=80), victim, batch
    )
    assert result.succeeded.any()
    assert (result.final["l2"] < result.flip["l2"])[result.succeeded].any()
