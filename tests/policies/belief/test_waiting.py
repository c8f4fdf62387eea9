"""The belief search never waits for a GPU: fake tensors have no values that it could read."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TypeVar

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from rlab.core.batched import Rows
from rlab.core.env import Proposal, State, Task
from rlab.policies.belief import Belief
from rlab.policies.belief.state import BeliefState
from tests.policies.belief.planted import make_case

R = TypeVar("R", bound=Rows)


def without_values(rows: R, mode: FakeTensorMode) -> R:
    def empty(value: object) -> object:
        if isinstance(value, Rows):
            return without_values(value, mode)
        return mode.from_tensor(value) if isinstance(value, Tensor) else value

    return replace(rows, **{field.name: empty(getattr(rows, field.name)) for field in fields(rows)})


@pytest.mark.slow
def test_a_proposal_needs_no_value_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, observe = list[tuple[State, BeliefState, Task]](), Belief.observe

    def noting(self: Belief, state: State, memory: BeliefState, task: Task) -> BeliefState:
        steps.append((state, memory, task))
        return observe(self, state, memory, task)

    case = make_case(2, budget=50)
    with monkeypatch.context() as patched:
        patched.setattr(Belief, "observe", noting)
        case.run()
    policy = case.attack.policy
    assert isinstance(policy, Belief)

    def proposed(state: State, memory: BeliefState, task: Task) -> Proposal[BeliefState]:
        return policy.propose(state, policy.observe(state, memory, task), task)

    for queries in (1, 2, 12, 13, 45):
        state, memory, task = steps[queries - 1]
        with monkeypatch.context() as gpu, FakeTensorMode(allow_non_fake_inputs=True) as mode:
            gpu.setattr("rlab.policies.belief.rule.rows_to_redraw", lambda repeated: torch.arange(len(repeated)))
            proposal = proposed(without_values(state, mode), without_values(memory, mode), task)
            assert proposal.assignment.shape == state.assignment.shape
    state, memory, task = steps[12]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode, pytest.raises(DynamicOutputShapeException):
        proposed(without_values(state, mode), without_values(memory, mode), task)  # a CPU reads which rows repeat
