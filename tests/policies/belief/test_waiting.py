"""What the belief search asks of a GPU: nothing that has to wait for it. Fake tensors have no values to be asked for."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from rlab.core.env import Proposal, State, Task
from rlab.policies.belief import BeliefPolicy
from rlab.policies.belief.rule import hotter_at_once, hotter_where_needed
from tests.policies.belief.planted import make_case


def without_values(state: State, mode: FakeTensorMode) -> State:
    def empty(value: Any) -> Any:
        return mode.from_tensor(value) if isinstance(value, Tensor) else {key: empty(v) for key, v in value.items()}

    return replace(state, **{field.name: empty(getattr(state, field.name)) for field in fields(state)})


def test_a_proposal_needs_no_value_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    states, propose = list[tuple[State, Task]](), BeliefPolicy.propose

    def noting(self: BeliefPolicy, state: State, task: Task) -> Proposal:
        states.append((state, task))
        return propose(self, state, task)

    case = make_case(2, budget=50)
    with monkeypatch.context() as patched:
        patched.setattr(BeliefPolicy, "propose", noting)
        case.run()
    policy = case.attack.policy
    assert isinstance(policy, BeliefPolicy)
    monkeypatch.setattr("rlab.policies.belief.rule.hotter_where_needed", hotter_at_once)  # as on a GPU
    for queries in (0, 1, 12, 13, 45):
        state, task = states[queries]
        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            asked = policy.propose(without_values(state, mode), task).assignment
            assert asked.shape == state.assignment.shape
    monkeypatch.setattr("rlab.policies.belief.rule.hotter_where_needed", hotter_where_needed)
    with (
        FakeTensorMode(allow_non_fake_inputs=True) as mode,
        pytest.raises(DynamicOutputShapeException),
    ):
        policy.propose(without_values(states[13][0], mode), task)  # on a CPU it looks, which is cheaper there
