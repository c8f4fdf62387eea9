"""The sweep: every entry on every patch is looked at before anything is changed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rlab.core.env import Accept, Task
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.policies.greedy import Greedy
from tests.policies.states import Walk, flat

GRIDS = [PatchGrid((6,), (1,)), PatchGrid((2, 3), (1, 1)), PatchGrid((1, 2, 3), (1, 1, 1))]
WORTH = torch.tensor([3.0, 1.0, 8.0, 2.0, 5.0, 4.0])


def additive(x: Tensor) -> Tensor:
    """Entry 1 on a patch is worth WORTH, entry 2 twice that."""
    return 100 - (x.flatten(1) * WORTH).sum(1)


@pytest.mark.parametrize("grid", GRIDS, ids=lambda grid: f"{grid.rank}d")
def test_a_sweep_looks_at_everything_once_then_takes_the_best(grid: PatchGrid) -> None:
    walk = Walk(Greedy(take=2), grid, additive, n=2)
    for _ in range(12):
        walk.step()
        assert not walk.state.assignment.any()
    looked = [tuple(proposal.assignment[0].tolist()) for proposal in walk.proposals]
    expected = [tuple(entry * (patch == at) for patch in range(6)) for entry in (1, 2) for at in range(6)]
    assert looked == expected
    assert all((proposal.rule == Accept.IF_FLIPPED).all() for proposal in walk.proposals)
    walk.step()
    assert (walk.proposals[-1].rule == Accept.ALWAYS).all()
    assert walk.state.assignment.tolist() == [[0, 0, 2, 0, 2, 0]] * 2  # the two worth most, at the stronger entry


def test_the_next_sweep_leaves_out_what_is_there() -> None:
    walk = Walk(Greedy(take=1), GRIDS[0], additive)
    for _ in range(13):
        walk.step()
    assert walk.state.assignment.tolist() == [[0, 0, 2, 0, 0, 0]]
    before = len(walk.proposals)
    while walk.state.assignment.count_nonzero() == 1:
        walk.step()
    assert len(walk.proposals) - before == 11 + 1  # 12 less the one that is there, and the step
    assert walk.state.assignment.tolist() == [[0, 0, 2, 0, 2, 0]]


def test_no_patch_is_taken_twice_and_no_more_than_there_are() -> None:
    walk = Walk(Greedy(take=50), GRIDS[0], additive)
    for _ in range(13):
        walk.step()
    assert walk.state.assignment.tolist() == [[2] * 6]


def test_nothing_is_restored_where_fewer_are_left_than_it_takes() -> None:
    walk = Walk(Greedy(take=4), GRIDS[0], additive, entries=1)
    for _ in range(6 + 1 + 2 + 1):
        walk.step()
    assert walk.state.assignment.tolist() == [[1] * 6]
    walk.step()  # nothing is left to do
    assert walk.state.assignment.tolist() == [[1] * 6]


def test_a_look_that_reaches_the_goal_stays() -> None:
    walk = Walk(Greedy(), GRIDS[0], lambda x: 5.0 - 6 * x[:, 3])
    for _ in range(4):
        walk.step()
    assert walk.state.assignment.tolist() == [[0, 0, 0, 1, 0, 0]]
    assert walk.state.margin.tolist() == [-1]


def test_the_least_it_needs_is_a_sweep_and_a_step() -> None:
    walk = Walk(Greedy(), GRIDS[0], flat, entries=3)
    assert Greedy().least_steps(walk.env.task) == 3 * 6 + 1
    assert Greedy().least_steps(Task(PatchGrid((8, 8), (2, 2)), 5, Untargeted(), 10)) == 5 * 16 + 1
