"""Contracts of every policy, victim, filter and rank: exact counts, kept budgets, real flips."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlab.core.attack import Attack
from rlab.core.env import render
from rlab.core.goals import Untargeted
from rlab.data.batch import Batch
from rlab.errors import OptionError
from rlab.filters import FAMILIES
from rlab.filters.palette import FreePixels
from rlab.results.result import AttackResult, Status
from rlab.runs.attack import run_attack
from rlab.runs.options import make_attack
from rlab.victims import Victim
from rlab.victims.account import PHASES
from tests.helpers import (
    ALL_FILTERS,
    ALL_POLICIES,
    ALL_VICTIMS,
    CHANNELS,
    NAMED_POLICIES,
    PATCHES,
    RANKS,
    SIZES,
    exact_victim,
    filters_for,
    labelled_by,
    make_batch,
)
from tests.victims.makers import inputs, linear


@pytest.fixture(autouse=True, scope="module")
def _short_plans() -> Iterator[None]:
    """What is counted does not depend on the length of an imagined attack."""
    with mock.patch("rlab.policies.imagine.policy.STEPS", 6):
        yield


def assert_kept(made: Attack, victim: Victim, batch: Batch, result: AttackResult) -> None:
    """Check everything a result promises against the victim."""
    assert_counts(made, victim, result)
    assert_statuses(made, victim, batch, result)
    if not isinstance(made.palette, FreePixels):
        bank = made.palette.bank(batch.x, batch.bounds, result.seeds.tolist())
        assert torch.equal(render(bank, result.assignment.long(), made.grid), result.perturbed)
    untouched = made.grid.expand(result.assignment == 0)[:, None].expand_as(result.perturbed)
    assert torch.equal(result.perturbed[untouched], batch.x[untouched])
    assert torch.equal(result.original, batch.x)


def assert_counts(made: Attack, victim: Victim, result: AttackResult) -> None:
    """Check that reported queries equal the rows the victim saw, by phase, within the budget."""
    for phase, reported in zip(PHASES, result.queries.sum(0).tolist(), strict=True):
        assert victim.rows[phase] == reported, phase
    assert (result.queries.sum(1) <= made.budget).all()
    assert (result.queries[:, 0] >= 1).all()


def assert_statuses(made: Attack, victim: Victim, batch: Batch, result: AttackResult) -> None:
    """Check that exactly the wrong samples are skipped, and that successes flip again."""
    right = made.goal.correct(victim(batch.x), batch.y)
    assert [status is Status.SKIPPED for status in result.status] == (~right).tolist()
    again = made.goal.reached(victim(result.perturbed), batch.y)
    assert again[result.succeeded].all()
    spent = torch.tensor([status is Status.SPENT for status in result.status])
    assert not again[spent].any()
    verified = result.queries[:, PHASES.index("verify")]
    assert torch.equal(verified > 0, result.succeeded)


def run(victim: Victim, batch: Batch, **options: Any) -> tuple[Attack, AttackResult]:
    made = make_attack(batch, **{"seed": 1} | options)
    return made, run_attack(made, victim, batch)


BUDGETS = {"pixels": 60, "pixels by labels": 100}  # more than others need


def product(policies: Iterable[str], *others: Iterable[Any]) -> list[Any]:
    """All combinations with rank last. Those that are not slow hold every pair of a policy, one of the others and a rank, the
    searches beside the named policies in one rank, and the one that imagines with the first of the others too."""
    every = [list(each) for each in others[:-1]]
    first = [each[0] for each in every]

    def quick(policy: str, rest: list[Any]) -> bool:
        if policy not in NAMED_POLICIES:
            return rest[-1] == 2 and (policy != "auto with a surrogate" or rest[:-1] == first)
        at = NAMED_POLICIES.index(policy) + sum(each.index(one) for each, one in zip(every, rest, strict=False))
        return bool(rest[-1] == RANKS[at % len(RANKS)])

    return [
        pytest.param(policy, *rest, marks=() if quick(policy, rest) else (pytest.mark.slow,))
        for policy, *rest in itertools.product(policies, *others)
    ]


@pytest.mark.parametrize(("policy", "kind", "rank"), product(ALL_POLICIES, ALL_VICTIMS, RANKS))
def test_every_policy_on_every_victim(policy: str, kind: str, rank: int) -> None:
    model = linear()
    x = inputs(rank, 6)
    y = model.scores(x).argmax(1)
    y[2] = (y[2] + 1) % 3
    batch = Batch(x=x, y=y)
    search = ALL_POLICIES[policy]
    with ALL_VICTIMS[kind](model, rank) as make:
        victim = make()
        if search.labels:
            victim = victim.read_as(outputs="labels")
        made, result = run(victim, batch, patch=1, budget=BUDGETS.get(policy, 30), **search.options(x[0].numel()))
        asked = sum(model.seen)
        assert asked == int(result.queries.sum())  # by the model's own count
        assert_kept(made, victim, batch, result)
    assert result.succeeded.any()
    assert result.status[2] is Status.SKIPPED


@pytest.mark.parametrize(("name", "rank"), [(name, rank) for rank in RANKS for name in filters_for(rank)])
def test_every_filter(name: str, rank: int) -> None:
    victim = exact_victim(rank)
    batch = labelled_by(victim, make_batch(rank, 5), wrong=(1,))
    patch = SIZES[rank] if FAMILIES[name](CHANNELS[rank])[0].whole else PATCHES[rank]
    made, result = run(victim, batch, patch=patch, palette=[name], policy="square", budget=40)
    assert_kept(made, victim, batch, result)
    changed = (result.perturbed != result.original).flatten(1).any(1)
    assert not (changed & ~(result.assignment != 0).any(1)).any()


def test_every_filter_is_for_some_rank() -> None:
    assert {name for rank in RANKS for name in filters_for(rank)} == set(ALL_FILTERS)


GOALS = ("untargeted", "targeted:2", "below:0.2")


@pytest.mark.parametrize(
    ("policy", "goal", "accept", "rank"), product(ALL_POLICIES, GOALS, ("better", "always"), RANKS)
)
def test_every_policy_with_every_goal(policy: str, goal: str, accept: str, rank: int) -> None:
    search, victim = ALL_POLICIES[policy], exact_victim(rank)
    if search.labels and goal.startswith("below"):
        pytest.skip("labels say nothing of a probability")
    batch = labelled_by(victim, make_batch(rank, 4), wrong=(3,))
    victim = victim.read_as(outputs="labels") if search.labels else victim
    budget = 40 if policy == "greedy" else 20  # a sweep alone takes 34 queries
    options = search.options(batch.x[0].numel())
    made = make_attack(batch, patch=PATCHES[rank], goal=goal, accept=accept, budget=budget, chunk=2, **options)
    result = run_attack(made, victim, batch)
    assert_counts(made, victim, result)
    again = made.goal.reached(victim(result.perturbed), batch.y)
    assert again[result.succeeded].all()


@settings(max_examples=16)
@given(
    policy=st.sampled_from(sorted(ALL_POLICIES)),
    rank=st.sampled_from(RANKS),
    over=st.integers(-2, 9),
    chunk=st.integers(1, 5),
    cleanup=st.booleans(),
    seed=st.integers(0, 2**62),
)
def test_no_budget_is_ever_overrun(policy: str, rank: int, over: int, chunk: int, cleanup: bool, seed: int) -> None:
    """Around the least budget a policy can work with, where one row too many would show."""
    search, victim = ALL_POLICIES[policy], exact_victim(rank)
    batch = labelled_by(victim, make_batch(rank, 4, seed % 1000))
    victim = victim.read_as(outputs="labels") if search.labels else victim
    options: dict[str, Any] = {"patch": PATCHES[rank], "chunk": chunk, "cleanup": cleanup}
    options |= search.options(batch.x[0].numel())
    probe = make_attack(batch, budget=10_000, **options)
    least = probe.policy.least_steps(probe.task) + 2
    if over < 0:
        with pytest.raises(OptionError):
            make_attack(batch, budget=least + over, **options)
        assert not victim.rows
        return
    made = make_attack(batch, budget=least + over, seed=seed, **options)
    result = run_attack(made, victim, batch)
    assert_kept(made, victim, batch, result)
    assert isinstance(made.goal, Untargeted)
