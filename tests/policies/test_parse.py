"""Policies by name."""

from __future__ import annotations

import pytest

from rlab.errors import InputError
from rlab.policies import BASELINES, parse_policy
from rlab.policies.greedy import Greedy
from rlab.policies.random import Random
from rlab.policies.square import Square
from tests.helpers import ALL_POLICIES


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        ("random", Random()),
        (" greedy ", Greedy()),
        ("greedy()", Greedy()),
        ("greedy(take=5)", Greedy(take=5)),
        ("square(share=0.2)", Square(share=0.2)),
    ],
)
def test_a_name_with_or_without_options(spec: str, policy: object) -> None:
    assert parse_policy(spec) == policy


def test_a_policy_is_itself() -> None:
    policy = Square(share=0.3)
    assert parse_policy(policy) is policy


def test_every_policy_is_in_the_contract_tests() -> None:
    assert {search.policy for search in ALL_POLICIES.values()} == {*BASELINES, "auto"}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("randon", r"unknown policy 'randon'\. Did you mean 'random'\?"),
        ("xyz", "unknown policy 'xyz'. There are auto, dual_action, two_agents, random, greedy, square"),
        ("dual_action", r"needs the file of a trained agent, dual_action\(agent='agent.safetensors'\): train one with"),
        ("dual_action(restore=False)", "needs the file of a trained agent"),
        ("two_agents(temporall=False)", "temporall"),
        ("greedy(takes=3)", "the policy 'greedy' does not take the options takes"),
        ("greedy(3)", "expected a policy like"),
        ("auto(ways=2)", "the policy 'auto' does not take the options ways"),
        ("greedy(take=open('x'))", "expected a policy like"),
        ("os.system", "unknown policy .os.system."),
        ("", "expected a policy like"),
        ("random(", "expected a policy like"),
        ("greedy(take=0)", "expected take, .* at least 1, got 0"),
        ("greedy(take='two')", "the option take"),
        ("square(share=0)", "expected share, .* above 0 and up to 1, got 0"),
        ("square(share=1.5)", "expected share"),
        ("square(share='x')", "the option share"),
    ],
)
def test_what_is_not_a_policy(spec: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        parse_policy(spec)
