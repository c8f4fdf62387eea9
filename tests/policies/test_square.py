"""Boxes that shrink on the paper's schedule, for any rank."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rlab.core.env import Accept
from rlab.core.grid import PatchGrid
from rlab.policies.square import Square, share_at
from tests.policies.states import Walk, flat

GRIDS = [PatchGrid((40,), (1,)), PatchGrid((12, 10), (1, 1)), PatchGrid((6, 8, 7), (1, 1, 1))]


def extent(grid: PatchGrid, changed: Tensor) -> list[int]:
    """The side along every axis of what changed (p,), which has to be a full box."""
    where = changed.view(grid.shape).nonzero()
    sides = (where.amax(0) - where.amin(0) + 1).tolist()
    assert len(where) == torch.tensor(sides).prod()
    return [int(side) for side in sides]


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid.rank}d")
@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
def test_a_proposal_is_a_box_of_one_entry(grid: PatchGrid, share: float) -> None:
    walk = Walk(Square(share), grid, flat, entries=3, n=30, budget=10_000)
    walk.step()
    proposal = walk.proposals[0]
    expected = [min(count, max(1, round(share ** (1 / grid.rank) * count))) for count in grid.shape]
    for row in proposal.assignment:
        assert extent(grid, row != 0) == expected
        assert len(row[row != 0].unique()) == 1
    assert set(proposal.assignment.unique().tolist()) == {0, 1, 2, 3} - ({0} if share == 1 else set())
    assert (proposal.rule == Accept.IF_BETTER).all()


def test_boxes_reach_every_corner() -> None:
    grid = GRIDS[1]
    walk = Walk(Square(0.1), grid, flat, n=3000)
    walk.step()
    touched = (walk.proposals[0].assignment != 0).any(0).view(grid.shape)
    assert touched.all()


@pytest.mark.parametrize(
    ("step", "halvings"), [(0, 0), (10, 0), (11, 1), (51, 2), (201, 3), (501, 4), (1001, 5), (2001, 6), (9999, 9)]
)
def test_the_share_halves_on_the_papers_schedule(step: int, halvings: int) -> None:
    """As in the published code for 10,000 steps; other budgets stretch it."""
    assert float(share_at(0.8, torch.tensor([step]), 10_000)) == pytest.approx(0.8 / 2**halvings)
    assert float(share_at(0.8, torch.tensor([step]), 1_000_000)) >= 0.8 / 2**halvings
    assert float(share_at(0.8, torch.tensor([2 * step]), 20_000)) == pytest.approx(0.8 / 2**halvings)


def test_it_builds_on_what_was_kept() -> None:
    walk = Walk(Square(0.1), GRIDS[0], lambda x: 1000 - x.flatten(1).sum(1), n=5)
    for _ in range(20):
        before = walk.step()
        proposal = walk.proposals[-1]
        changed = proposal.assignment != before.assignment
        assert (changed.sum(1) <= 4).all()
    assert (walk.state.assignment.count_nonzero(1) > 8).all()
