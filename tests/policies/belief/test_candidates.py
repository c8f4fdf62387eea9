"""Candidates for the next query: their equations by hand, and what holds for every rank."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rlab.core.grid import PatchGrid
from rlab.policies.belief import BeliefPolicy
from rlab.policies.belief.candidates import (
    CANDIDATES,
    DESCRIBED,
    STANDING,
    Candidates,
    Record,
    log_scaled,
    log_share,
    make_candidates,
)
from rlab.policies.belief.rule import follow_rule
from tests.policies.states import Walk

SIZES = {1: (12,), 2: (4, 4), 3: (3, 3, 3)}


def slope(x: Tensor) -> Tensor:
    """A margin that falls more along later values."""
    flat = x.flatten(1)
    return 1 - flat @ torch.linspace(0, 3 / flat.shape[1], flat.shape[1])


def walk(rank: int, n: int = 3) -> Walk:
    return Walk(BeliefPolicy(), PatchGrid.of(SIZES[rank], 1), slope, n=n)


def considered(steps: Walk) -> Candidates:
    """The candidates for a walk's next step."""
    state, task, policy = steps.state, steps.env.task, steps.policy
    assert isinstance(policy, BeliefPolicy)
    memory, effects = policy.believe(state, steps.memory, task)
    choice = follow_rule(memory, effects, state, task)
    return make_candidates(choice, memory, Record.empty(state.margin), effects, state, task)


def test_logarithms_by_hand() -> None:
    assert log_share(torch.tensor([4.0]), torch.tensor([1.0]), 2).item() == pytest.approx(math.log(2))
    assert log_share(torch.tensor([4.0]), torch.tensor([1.0]), 0).item() == pytest.approx(math.log(4))
    assert log_share(torch.tensor([0.0]), torch.tensor([1.0]), 1).item() == -6
    assert log_scaled(torch.tensor([0, 9, 99, 5000]), 99).tolist() == pytest.approx([0, 0.5, 1, 1])


def test_the_record_of_forecasts_by_hand() -> None:
    record = Record.empty(torch.zeros(1)).after(torch.tensor([1.5]), torch.tensor([0.5]), torch.tensor([True]))
    assert [record.bias.item(), record.error.item(), record.flips.item()] == pytest.approx([0.2, 0.44, 0.2])


def test_the_first_candidate_is_the_rule() -> None:
    assert CANDIDATES[0] == (1.0, 1.0, "free")


@pytest.mark.parametrize("rank", SIZES)
def test_candidates_of_every_rank(rank: int) -> None:
    steps, flips = walk(rank), 0
    for _ in range(8):
        candidates, tried = considered(steps), steps.memory.answers.tried
        state = steps.step()
        n, p = state.assignment.shape
        assert candidates.assignment.shape == (n, len(CANDIDATES), p)
        assert candidates.described.shape == (n, len(CANDIDATES), DESCRIBED)
        assert candidates.standing.shape == (n, STANDING)
        assert torch.isfinite(candidates.described).all()
        assert torch.isfinite(candidates.standing).all()
        assert torch.equal(candidates.assignment[:, 0], steps.proposals[-1].assignment)
        flipped = state.margin < 0
        flips += int(flipped.sum())
        for i, (_, _, kind) in enumerate(CANDIDATES):
            again = (tried == candidates.assignment[:, i, None]).all(2).any(1)
            again |= (state.queried == candidates.assignment[:, i]).all(1) & (state.step > 0)
            allowed = ~again & (flipped if kind == "near" else torch.ones_like(flipped))
            assert torch.equal(candidates.legal[:, i], allowed if i else torch.ones_like(flipped))
            if kind == "near":
                near = candidates.assignment[flipped, i]
                assert ((near == 0) | (near == state.assignment[flipped])).all()
        assignment, expected = candidates.take(torch.full((n,), 3))
        assert torch.equal(assignment, candidates.assignment[:, 3])
        assert torch.equal(expected, candidates.expected[:, 3])
    assert flips


def test_bolder_candidates_cost_more_before_the_flip_and_less_after_it() -> None:
    steps = walk(2, n=8)
    bold, shy = CANDIDATES.index((1.6, 0.0, "free")), CANDIDATES.index((0.7, 0.0, "free"))

    def difference() -> Tensor:
        cost = considered(steps).assignment.float().square().sum(2)
        return cost[:, bold] - cost[:, shy]

    assert (difference() > 0).all()
    while (steps.state.margin >= 0).any():
        steps.step()
    assert (difference() <= 0).all()
