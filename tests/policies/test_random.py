"""One random legal change a step."""

from __future__ import annotations

import pytest
import torch

from rlab.core.env import Accept
from rlab.core.grid import PatchGrid
from rlab.policies.random import Random
from tests.policies.states import Walk, flat

GRIDS = [PatchGrid((6,), (1,)), PatchGrid((2, 3), (1, 1)), PatchGrid((1, 2, 3), (1, 1, 1))]


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid.rank}d")
def test_every_proposal_changes_exactly_one_patch_and_stays_if_better(grid: PatchGrid) -> None:
    walk = Walk(Random(), grid, lambda x: 100 - x.flatten(1).sum(1), n=40)
    for _ in range(15):
        before = walk.step()
        proposal = walk.proposals[-1]
        assert ((proposal.assignment != before.assignment).sum(1) == 1).all()
        assert proposal.assignment.min() >= 0
        assert proposal.assignment.max() <= 2
        assert (proposal.rule == Accept.IF_BETTER).all()


def test_every_legal_change_comes_about_equally_often() -> None:
    """From a clean input: 2 entries on 6 patches, no restore; 3,000 draws, 250 each with a spread of 15."""
    walk = Walk(Random(), GRIDS[0], flat, n=3000)
    walk.step()
    made = walk.proposals[0].assignment
    counts = torch.stack([(made == entry).sum(0) for entry in (1, 2)])
    assert int(counts.sum()) == 3000
    assert (counts - 250).abs().max() < 75


def test_a_distorted_patch_may_be_restored() -> None:
    walk = Walk(Random(), PatchGrid((1,), (1,)), lambda x: 10 - x.flatten(1).sum(1), entries=1, n=5)
    walk.step()
    assert walk.state.assignment.tolist() == [[1]] * 5  # the only thing that can be done
    walk.step()
    assert walk.proposals[-1].assignment.tolist() == [[0]] * 5  # and the only thing then
