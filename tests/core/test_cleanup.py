"""Reverse distortion removal on a model whose margin is a sum of known worths."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, tensor

from rlab.core.cleanup import clean_up
from rlab.core.env import AttackEnv, State, Task
from rlab.core.goals import Untargeted
from rlab.core.grid import PatchGrid
from rlab.victims.account import PHASES
from rlab.victims.base import Victim
from rlab.victims.meter import QueryMeter

PATCH = 2
CLEANUP = PHASES.index("cleanup")


class Additive(Victim):
    """Margin of class 0 = what it starts with less the worth of every distorted patch; worths are whole numbers."""

    def __init__(self, worth: Tensor, start: float) -> None:
        super().__init__(outputs="logits", bounds=(0.0, 1.0))
        self.grid, self.worth, self.start = PatchGrid((PATCH * len(worth),), (PATCH,)), worth, start

    def _predict(self, x: Tensor) -> Tensor:
        margin = self.margin(self.grid.reduce(x[:, 0]))
        return torch.stack([margin, torch.zeros_like(margin)], 1)

    def margin(self, distorted: Tensor) -> Tensor:
        return self.start - (distorted.float() * self.worth).sum(1)


def flipped(
    victim: Additive, distorted: list[list[int]], feedback: Tensor, budget: int | None = None
) -> tuple[AttackEnv, State, Tensor, QueryMeter]:
    """Rows that have just been flipped by the patches `distorted`, and what the search believes of each patch."""
    assignment = tensor(distorted)
    n, patches = assignment.shape
    meter = QueryMeter(victim, n, budget)
    env = AttackEnv(meter.query, Task(victim.grid, 1, Untargeted(), budget or 1000))
    bank = torch.zeros(n, 2, 1, PATCH * patches)
    bank[:, 1] = 1
    margin = victim.margin(assignment)
    scores = torch.stack([margin, torch.zeros_like(margin)], 1)
    state = env.start(torch.zeros(n, dtype=torch.int64), torch.arange(n), torch.arange(n), bank, torch.ones(n), scores)
    x = victim.grid.expand(assignment.float())[:, None]
    believed = torch.where(assignment > 0, feedback, 0.0)
    return env, replace(state, assignment=assignment, x=x), believed, meter


def assert_minimal(victim: Additive, assignment: Tensor) -> None:
    """The goal holds, and no single further patch can be given back."""
    assert (victim.margin(assignment) < 0).all()
    for row in assignment:
        for patch in row.nonzero().flatten():
            fewer = row.clone()
            fewer[patch] = 0
            assert (victim.margin(fewer[None]) >= 0).all()


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[float], float]:
    """Worths, what the search believed of them, and a start that all patches together overcome."""
    worth = draw(st.lists(st.integers(0, 9), min_size=1, max_size=10).filter(any))
    believed = draw(st.lists(st.floats(-5, 10), min_size=len(worth), max_size=len(worth)))
    return worth, believed, draw(st.integers(0, sum(worth) - 1)) + 0.5


@given(cases())
def test_what_is_left_is_minimal_whatever_the_search_believed(case: tuple[list[int], list[float], float]) -> None:
    worth, believed, start = case
    victim = Additive(tensor(worth).float(), start)
    env, state, believes, meter = flipped(victim, [[1] * len(worth)], tensor([believed]))
    after = clean_up(env, state, believes, meter)
    assert_minimal(victim, after.assignment)
    assert (after.margin < 0).all()
    assert torch.equal(after.margin, victim.margin(after.assignment))
    assert torch.equal(after.x, victim.grid.expand(after.assignment.float())[:, None])
    assert victim.rows == {"cleanup": int(meter.counts[:, CLEANUP].sum())}
    assert meter.counts.sum() == meter.counts[:, CLEANUP].sum()


@given(cases(), st.integers(0, 12), st.integers(0, 2))
def test_the_budget_holds_and_the_reserve_stays(
    case: tuple[list[int], list[float], float], budget: int, reserve: int
) -> None:
    worth, believed, start = case
    victim = Additive(tensor(worth).float(), start)
    env, state, believes, meter = flipped(victim, [[1] * len(worth)], tensor([believed]), budget)
    after = clean_up(env, state, believes, meter, reserve=reserve)
    assert victim.rows["cleanup"] <= max(0, budget - reserve)
    assert (victim.margin(after.assignment) < 0).all()


def test_rows_keep_their_order_and_do_not_know_each_other() -> None:
    worth = tensor([5.0, 1.0, 0.0, 2.0, 7.0, 0.0])
    rows = [[1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 0], [1, 1, 1, 0, 0, 1], [0, 1, 0, 1, 1, 1]]
    victim = Additive(worth, 4.5)
    env, state, believes, meter = flipped(victim, rows, worth)
    together = clean_up(env, state, believes, meter)
    assert together.sample.tolist() == [0, 1, 2, 3]
    assert_minimal(victim, together.assignment)
    for i, row in enumerate(rows):
        env, state, believes, alone = flipped(victim, [row], worth)
        assert torch.equal(clean_up(env, state, believes, alone).assignment[0], together.assignment[i])
        assert alone.counts[0].tolist() == meter.counts[i].tolist()


def test_useless_patches_go_together() -> None:
    worth = torch.zeros(64)
    worth[17] = 3
    victim = Additive(worth, 2.5)
    env, state, believes, meter = flipped(victim, [[1] * 64], worth)
    after = clean_up(env, state, believes, meter)
    assert after.assignment[0].nonzero().flatten().tolist() == [17]
    assert int(meter.counts.sum()) == 2  # 63 at once, and the one that is needed


def test_a_wrong_belief_costs_no_more_than_halving() -> None:
    worth = torch.zeros(64)
    worth[17] = 3
    victim = Additive(worth, 2.5)
    env, state, believes, meter = flipped(victim, [[1] * 64], torch.zeros(64))  # nothing known
    after = clean_up(env, state, believes, meter)
    assert after.assignment[0].nonzero().flatten().tolist() == [17]
    assert int(meter.counts.sum()) <= 16


def test_patience_stops_after_needed_patches_in_a_row() -> None:
    worth = torch.ones(12)
    victim = Additive(worth, 11.5)  # every one is needed
    for patience, queries in ((1, 1), (3, 3), (None, 12)):
        env, state, believes, meter = flipped(victim, [[1] * 12], worth)
        after = clean_up(env, state, believes, meter, patience=patience)
        assert after.assignment.sum() == 12
        assert int(meter.counts.sum()) == queries


HALVES, QUARTERS = tensor([0, 0, 0, 0, 1, 1, 1, 1]), tensor([0, 0, 1, 1, 2, 2, 3, 3])


def test_regions_are_given_back_whole_before_single_patches() -> None:
    victim = Additive(tensor([0.0, 0, 0, 0, 0, 0, 0, 9]), start=5)
    env, state, believes, meter = flipped(victim, [[1] * 8], victim.worth.expand(1, 8))
    done = clean_up(env, state, believes, meter, regions=(HALVES, QUARTERS))
    assert done.assignment.tolist() == [[0, 0, 0, 0, 0, 0, 0, 1]]
    # the left half, then the right half in vain, its first quarter, its last in vain, patch 6, patch 7 in vain
    assert int(meter.counts[0, CLEANUP]) == 6


def test_a_region_that_holds_the_same_as_one_that_failed_is_not_tried_again() -> None:
    victim = Additive(tensor([9.0, 9, 0, 0, 0, 0, 0, 0]), start=5)
    env, state, believes, meter = flipped(victim, [[1, 0, 0, 0, 0, 0, 0, 0]], victim.worth.expand(1, 8))
    clean_up(env, state, believes, meter, regions=(HALVES, QUARTERS))
    assert int(meter.counts[0, CLEANUP]) == 2  # as the left half, and as a single patch


def test_patience_ends_a_level_of_regions_and_goes_on_with_the_next() -> None:
    victim = Additive(
        tensor([0.0, 9, 0, 9, 0, 9, 0, 9]), start=30
    )  # every quarter is needed, half of the patches are not
    env, state, believes, meter = flipped(victim, [[1] * 8], victim.worth.expand(1, 8))
    done = clean_up(env, state, believes, meter, patience=1, regions=(HALVES, QUARTERS))
    assert done.assignment.tolist() == [[0, 1, 0, 1, 0, 1, 0, 1]]
    assert int(meter.counts[0, CLEANUP]) == 4  # one half, one quarter, the four idle patches at once, one needed patch


@given(st.data())
def test_with_regions_what_is_left_still_flips_and_is_needed(data: st.DataObject) -> None:
    worth = tensor(data.draw(st.lists(st.integers(-2, 5), min_size=8, max_size=8)), dtype=torch.float32)
    total = float(worth.sum())
    victim = Additive(worth, start=total - 1)  # all eight flip it by one
    env, state, believes, meter = flipped(victim, [[1] * 8], worth.expand(1, 8))
    done = clean_up(env, state, believes, meter, regions=(HALVES, QUARTERS))
    assert float(victim.margin(done.assignment)) < 0
    for patch in done.assignment[0].nonzero().flatten().tolist():
        without = done.assignment.clone()
        without[0, patch] = 0
        assert float(victim.margin(without)) >= 0 or worth[patch] < 0
