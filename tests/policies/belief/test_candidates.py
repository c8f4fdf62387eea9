"""Candidates for the next query: what holds for every rank."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rlab.core.grid import PatchGrid
from rlab.policies.belief import Belief
from rlab.policies.belief.candidates import GROUPS, make_candidates, summed
from rlab.policies.belief.rule import follow_rule
from tests.policies.states import Walk

SIZES = {1: (12,), 2: (4, 4), 3: (3, 3, 3)}
KINDS = [(kind, boldness) for kind, each in GROUPS.items() for boldness in each]


def slope(x: Tensor) -> Tensor:
    """A margin that falls more along later values."""
    flat = x.flatten(1)
    return 1 - flat @ torch.linspace(0, 3 / flat.shape[1], flat.shape[1])


def walk(rank: int, n: int = 3) -> Walk:
    return Walk(Belief(), PatchGrid.of(SIZES[rank], 1), slope, n=n)


def considered(steps: Walk) -> Tensor:
    """The candidates for a walk's next step."""
    state, task, policy = steps.state, steps.env.task, steps.policy
    assert isinstance(policy, Belief)
    memory = steps.memory
    effects = policy.draw(state, memory, task)
    return make_candidates(follow_rule(memory, effects, state, task), memory, effects, state, task)


def test_sums_over_an_assignment_by_hand() -> None:
    per_change = torch.tensor([[[1.0, 2.0, 4.0], [10.0, 20.0, 40.0]]])  # two entries, three patches
    assignment = torch.tensor([[[0, 0, 0], [1, 0, 2], [2, 1, 0]]])
    assert summed(per_change, assignment).tolist() == [[0.0, 41.0, 12.0]]


@pytest.mark.parametrize("rank", SIZES)
def test_the_first_candidate_is_the_rules_and_near_ones_keep_the_best_flip(rank: int) -> None:
    steps, flips = walk(rank), 0
    for _ in range(8):
        candidates = considered(steps)
        state = steps.step()
        assert candidates.shape == (len(state), len(KINDS), state.assignment.shape[1])
        assert torch.equal(candidates[:, 0], steps.proposals[-1].assignment)
        flipped = state.margin < 0
        flips += int(flipped.sum())
        for i, (kind, _) in enumerate(KINDS):
            if kind == "near":
                near = candidates[flipped, i]
                assert ((near == 0) | (near == state.assignment[flipped])).all()
    assert flips


def test_bolder_candidates_cost_more_before_the_flip_and_less_after_it() -> None:
    steps = walk(2, n=8)
    bold, shy = KINDS.index(("mean", 1.6)), KINDS.index(("mean", 0.7))

    def difference() -> Tensor:
        cost = considered(steps).float().square().sum(2)
        return cost[:, bold] - cost[:, shy]

    assert (difference() > 0).all()
    while (steps.state.margin >= 0).any():
        steps.step()
    assert (difference() <= 0).all()
