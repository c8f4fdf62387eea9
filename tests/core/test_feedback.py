"""Feedback: the drop of each query, divided among the patches that it changed."""

from __future__ import annotations

import math

import torch

from rlab.core.env import Accept
from rlab.core.feedback import Feedback
from tests.core.test_env import Script, begin, propose


def test_the_drop_is_shared_among_the_patches_that_changed() -> None:
    env, state = begin(Script([1.5], [0.7], [3.0]), [2.0])
    feedback = Feedback.begin(state)
    assert not feedback.drop.any()
    assert not feedback.tried.any()
    # two patches change in the second step and one stays as it is; the third restores one, changes one and is not kept
    steps = (([1, 0, 0, 0], Accept.IF_BETTER), ([1, 2, 0, 1], Accept.IF_BETTER), ([0, 2, 0, 2], Accept.IF_FLIPPED))
    for assignment, rule in steps:
        state, _ = env.step(state, propose([assignment], rule))
        feedback = feedback.after(state)
    wanted = torch.zeros(3, 4)
    wanted[1, 0] = 0.5
    wanted[2, 1] = wanted[1, 3] = 0.4
    wanted[0, 0] = wanted[2, 3] = (0.7 - 3.0) / 2
    torch.testing.assert_close(feedback.drop[0], wanted)
    assert torch.equal(feedback.tried[0], (wanted != 0).float())
    assert state.assignment.tolist() == [[1, 2, 0, 1]]
    torch.testing.assert_close(feedback.of(state.assignment)[0], torch.tensor([0.5, 0.4, 0.0, 0.4]))


def test_trying_again_counts_up_and_overwrites() -> None:
    """A proposal that changes nothing leaves no trace."""
    env, state = begin(Script([2.5], [3.0], [2.5], [1.0]), [2.0])
    feedback = Feedback.begin(state)
    for patch in (0, 1, 1, 1):
        state, _ = env.step(state, propose([[0, 0, patch, 0]]))
        feedback = feedback.after(state)
    assert feedback.tried[0, 1].tolist() == [0, 0, 3, 0]
    assert feedback.drop[0, 1].tolist() == [0, 0, 1, 0]
    assert feedback.tried.sum() == 3
    assert feedback.drop.count_nonzero() == 1


def test_nothing_is_learned_from_a_failure() -> None:
    env, state = begin(Script([math.nan]), [2.0])
    feedback = Feedback.begin(state)
    state, _ = env.step(state, propose([[1, 0, 0, 0]]))
    assert not feedback.after(state).drop.any()
